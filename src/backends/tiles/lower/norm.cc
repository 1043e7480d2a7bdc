// rms_norm, layer_norm and modulated_norm: one kernel.
#include "backends/tiles/tile_lowering.h"
#include "graph/ops/layer_norm.h"
#include "graph/ops/rms_norm.h"

namespace redline {
namespace {

using NormStage = TileStageBuilder<tiles::Norm>;

void add_norm(TileLowerContext& c, NormStage& s, int64_t cols) {
  const int64_t row = c.in(0).shape[1].constant();
  s.args.cols = static_cast<int32_t>(cols);
  s.args.row_stride = static_cast<int32_t>(row);
  s.read(&NormStage::Args::x, c.op().inputs[0], Reads::kTile);
  s.write(&NormStage::Args::y, c.op().outputs[0]);
  s.plan().in_place_of = c.op().inputs[0];
  // Norms of heads are cut into whole heads.
  const int64_t groups = std::max<int64_t>(1, 1024 / cols);
  s.stage().set_grid(c.out().shape[0], row, std::min(row, groups * cols), 8, c.row_parts());
  s.add();
}

Status lower_rms_norm(TileLowerContext& c) {
  NormStage s(c, tiles::KernelId::kNorm);
  s.args.eps = std::any_cast<RmsNormAttrs>(c.op().attrs).eps;
  REDLINE_TRY(s.dense_weight(&NormStage::Args::weight, 1));
  add_norm(c, s, c.in(1).shape[0].constant());
  return {};
}

Status lower_layer_norm(TileLowerContext& c) {
  const auto& attrs = std::any_cast<const LayerNormOpAttrs&>(c.op().attrs);
  NormStage s(c, tiles::KernelId::kNorm);
  s.args.eps = attrs.norm.eps;
  s.args.centred = attrs.norm.centred ? 1 : 0;
  if (attrs.has_weight) REDLINE_TRY(s.dense_weight(&NormStage::Args::weight, 1));
  if (attrs.has_bias) REDLINE_TRY(s.dense_weight(&NormStage::Args::bias, attrs.has_weight ? 2 : 1));
  s.args.is_own = attrs.norm.group > 0 ? 1 : 0;
  add_norm(c, s, attrs.norm.group > 0 ? attrs.norm.group : c.in(0).shape[1].constant());
  return {};
}

Status lower_modulated_norm(TileLowerContext& c) {
  const auto& attrs = std::any_cast<const LayerNormOpAttrs&>(c.op().attrs);
  NormStage s(c, tiles::KernelId::kNorm);
  s.args.eps = attrs.norm.eps;
  s.args.centred = attrs.norm.centred ? 1 : 0;
  s.args.table_cols = static_cast<int32_t>(c.in(1).shape[1].constant());
  s.args.scale = static_cast<int32_t>(attrs.scale);
  s.args.shift = static_cast<int32_t>(attrs.shift);
  s.row_dim(s.args.item_rows, attrs.rows_per_item);
  s.read(&NormStage::Args::table, c.op().inputs[1], Reads::kAll);
  add_norm(c, s, c.in(0).shape[1].constant());
  return {};
}

constexpr TileLowering kNormOps[] = {
    {&kRmsNorm, lower_rms_norm},
    {&kLayerNorm, lower_layer_norm},
    {&kModulatedNorm, lower_modulated_norm},
};

}  // namespace

extern const TileLowerings kNormTileLowerings = kNormOps;

}  // namespace redline
