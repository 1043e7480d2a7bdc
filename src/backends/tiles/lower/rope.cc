#include "graph/ops/rope.h"

#include <cstring>

#include "backends/tiles/tile_lowering.h"

namespace redline {
namespace {

using RopeTableStage = TileStageBuilder<tiles::RopeTable>;
using RopeStage = TileStageBuilder<tiles::Rope>;

Status lower_rope_table(TileLowerContext& c) {
  const auto& a = std::any_cast<const RopeTableAttrs&>(c.op().attrs);
  RopeTableStage s(c, tiles::KernelId::kRopeTable);
  s.args.half = static_cast<int32_t>(a.inverse_frequencies.size());
  s.args.attention_factor = a.attention_factor;
  s.args.long_context = static_cast<int32_t>(std::min<int64_t>(a.beyond.original_context, INT32_MAX));
  s.args.dynamic_context = static_cast<int32_t>(std::min<int64_t>(a.dynamic.original_context, INT32_MAX));
  s.args.base = a.dynamic.base;
  s.args.factor = a.dynamic.factor;
  s.args.growth_beta = a.growth.beta;
  s.args.growth_context = static_cast<int32_t>(std::min<int64_t>(a.growth.original_context, INT32_MAX));
  REDLINE_TRY(s.constant(&RopeTableStage::Args::frequencies, a.inverse_frequencies));
  if (!a.axes.empty()) {
    s.args.num_axes = static_cast<int32_t>(c.in(0).shape[1].constant());
    std::vector<float> bits(a.axes.size());
    std::memcpy(bits.data(), a.axes.data(), bits.size() * sizeof(float));
    REDLINE_TRY(s.constant(&RopeTableStage::Args::axes, bits));
  }
  if (a.beyond.original_context > 0)
    REDLINE_TRY(s.constant(&RopeTableStage::Args::long_frequencies, a.beyond.inverse_frequencies));
  s.read(&RopeTableStage::Args::positions, c.op().inputs[0], Reads::kRows);
  if (a.depends_on_length()) s.read(&RopeTableStage::Args::lengths, c.op().inputs[1], Reads::kRows);
  s.write(&RopeTableStage::Args::y, c.op().outputs[0]);
  const int64_t cols = c.out().shape[1].constant();
  s.stage().set_grid(c.out().shape[0], cols, cols, 8, c.row_parts());
  s.add();
  return {};
}

Status lower_rope(TileLowerContext& c) {
  RopeStage s(c, tiles::KernelId::kRope);
  const int64_t cols = c.out().shape[1].constant(), head = std::any_cast<RopeAttrs>(c.op().attrs).head_dim;
  s.args.cols = static_cast<int32_t>(cols);
  s.args.head_dim = static_cast<int32_t>(head);
  s.args.half = static_cast<int32_t>(c.in(1).shape[1].constant() / 2);
  s.read(&RopeStage::Args::x, c.op().inputs[0], Reads::kTile);
  s.read(&RopeStage::Args::table, c.op().inputs[1], Reads::kRows);
  s.write(&RopeStage::Args::y, c.op().outputs[0]);
  s.plan().in_place_of = c.op().inputs[0];
  s.stage().set_grid(c.out().shape[0], cols, std::min(cols, std::max<int64_t>(1, 1024 / head) * head), 8,
                     c.row_parts());
  s.add();
  return {};
}

constexpr TileLowering kRopeOps[] = {{&kRopeTable, lower_rope_table}, {&kRope, lower_rope}};

}  // namespace

extern const TileLowerings kRopeTileLowerings = kRopeOps;

}  // namespace redline
