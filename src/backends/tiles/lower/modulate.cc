// Ops that depend on the items of a batch: gated_add, group_norm, concat_rows, slice_rows, timestep_embedding.
#include <cmath>

#include "backends/tiles/shared_lowering.h"
#include "graph/ops/concat.h"
#include "graph/ops/gated_add.h"
#include "graph/ops/group_norm.h"
#include "graph/ops/timestep_embedding.h"

namespace redline {

using ModulateStage = TileStageBuilder<tiles::Modulate>;

namespace {

using SumsStage = TileStageBuilder<tiles::GroupNormSums>;
using ScaleStage = TileStageBuilder<tiles::GroupNormScale>;
using RowsStage = TileStageBuilder<tiles::ConcatRows>;
using TimestepStage = TileStageBuilder<tiles::TimestepEmbedding>;

/// Returns a stage that computes output 0, which has the shape of x.
ModulateStage modulate_stage(TileLowerContext& c, ValueId x, ValueId table, const Dim& item_rows) {
  const int64_t cols = c.out().shape[1].constant();
  ModulateStage s(c, tiles::KernelId::kModulate);
  s.args.cols = static_cast<int32_t>(cols);
  s.row_dim(s.args.item_rows, item_rows);
  s.read(&ModulateStage::Args::x, x, Reads::kTile);
  s.read(&ModulateStage::Args::table, table, Reads::kAll);
  s.write(&ModulateStage::Args::y, c.op().outputs[0]);
  s.plan().in_place_of = x;
  s.stage().set_grid(c.out().shape[0], cols, 1024, 8, c.row_parts());
  return s;
}

Status lower_gated_add(TileLowerContext& c) {
  const auto& a = std::any_cast<const GatedAddAttrs&>(c.op().attrs);
  add_gated(c, c.op().inputs[1], c.op().inputs[0], 2, a.column, a.rows_per_item);
  return {};
}

Status lower_group_norm_sums(TileLowerContext& c) {
  const auto& a = std::any_cast<const GroupNormOpAttrs&>(c.op().attrs);
  SumsStage s(c, tiles::KernelId::kGroupNormSums);
  s.args.channels = static_cast<int32_t>(c.in(0).shape[1].constant());
  s.args.groups = static_cast<int32_t>(a.norm.groups);
  s.row_dim(s.args.pixels, a.pixels);
  s.read(&SumsStage::Args::x, c.op().inputs[0], Reads::kAll);
  s.write(&SumsStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(c.out().shape[0], 2 * a.norm.groups, 2 * a.norm.groups, 4, c.row_parts());
  s.add();
  return {};
}

Status lower_group_norm(TileLowerContext& c) {
  const auto& a = std::any_cast<const GroupNormOpAttrs&>(c.op().attrs);
  const int64_t channels = c.in(0).shape[1].constant();
  const ValueId table = c.add_temporary(c.op().name + ".scale", {a.batch, Dim(2 * channels)});
  ScaleStage scale(c, tiles::KernelId::kGroupNormScale);
  scale.args.channels = static_cast<int32_t>(channels);
  scale.args.groups = static_cast<int32_t>(a.norm.groups);
  scale.args.eps = a.norm.eps;
  scale.row_dim(scale.args.pixels, a.pixels);
  scale.read(&ScaleStage::Args::sums, c.op().inputs[1], Reads::kAll);
  REDLINE_TRY(scale.dense_weight(&ScaleStage::Args::weight, 2));
  REDLINE_TRY(scale.dense_weight(&ScaleStage::Args::bias, 3));
  scale.write(&ScaleStage::Args::y, table);
  scale.plan().name = c.op().name + ".scale";
  scale.stage().set_grid(a.batch, 2 * channels, 2 * channels, 1, c.row_parts());
  scale.add();
  ModulateStage s = modulate_stage(c, c.op().inputs[0], table, a.pixels);
  s.args.table_cols = static_cast<int32_t>(2 * channels);
  s.args.term = static_cast<int32_t>(channels);
  s.args.has_silu = a.norm.silu ? 1 : 0;
  s.add();
  return {};
}

/// Adds the stage of concat_rows, or, without `b`, of slice_rows.
void add_rows(TileLowerContext& c, const RowsOpAttrs& a, bool has_b) {
  RowsStage s(c, tiles::KernelId::kConcatRows);
  const int64_t cols = c.out().shape[1].constant();
  s.args.cols = static_cast<int32_t>(cols);
  s.row_dim(s.args.a_rows, a.rows[0]);
  s.row_dim(s.args.a_item_rows, a.item_rows[0]);
  s.row_dim(s.args.a_skip, a.skip[0]);
  s.read(&RowsStage::Args::a, c.op().inputs[0], Reads::kAll);
  if (has_b) {
    s.row_dim(s.args.b_rows, a.rows[1]);
    s.row_dim(s.args.b_item_rows, a.item_rows[1]);
    s.row_dim(s.args.b_skip, a.skip[1]);
    s.read(&RowsStage::Args::b, c.op().inputs[1], Reads::kAll);
  }
  s.write(&RowsStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(c.out().shape[0], cols, 1024, 8, c.row_parts());
  s.add();
}

Status lower_concat_rows(TileLowerContext& c) {
  add_rows(c, std::any_cast<const RowsOpAttrs&>(c.op().attrs), true);
  return {};
}
Status lower_slice_rows(TileLowerContext& c) {
  add_rows(c, std::any_cast<const RowsOpAttrs&>(c.op().attrs), false);
  return {};
}

Status lower_timestep_embedding(TileLowerContext& c) {
  const auto& a = std::any_cast<const TimestepEmbeddingAttrs&>(c.op().attrs);
  // Like the CPU kernel, rounds every operation to float32.
  const int64_t half = a.cols / 2;
  const auto log_period = static_cast<float>(-std::log(double{a.max_period}));
  std::vector<float> frequencies;
  for (int64_t k = 0; k < half; ++k)
    frequencies.push_back(
        std::exp(log_period * static_cast<float>(k) / (static_cast<float>(half) - a.frequency_shift)));
  TimestepStage s(c, tiles::KernelId::kTimestepEmbedding);
  s.args.cols = static_cast<int32_t>(a.cols);
  s.args.cosine_first = a.cosine_first ? 1 : 0;
  s.args.scale = a.scale;
  REDLINE_TRY(s.constant(&TimestepStage::Args::frequencies, frequencies));
  s.read(&TimestepStage::Args::timestep, c.op().inputs[0], Reads::kRows);
  s.write(&TimestepStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(c.out().shape[0], a.cols, a.cols, 8, c.row_parts());
  s.add();
  return {};
}

constexpr TileLowering kModulateOps[] = {
    {&kGatedAdd, lower_gated_add},   {&kGroupNormSums, lower_group_norm_sums},
    {&kGroupNorm, lower_group_norm}, {&kConcatRows, lower_concat_rows},
    {&kSliceRows, lower_slice_rows}, {&kTimestepEmbedding, lower_timestep_embedding},
};

}  // namespace

void add_gated(TileLowerContext& c, ValueId x, ValueId residual, size_t table, int64_t column, const Dim& item_rows) {
  ModulateStage s = modulate_stage(c, x, c.op().inputs[table], item_rows);
  s.args.table_cols = static_cast<int32_t>(c.in(table).shape[1].constant());
  s.args.factor = static_cast<int32_t>(column);
  s.read(&ModulateStage::Args::residual, residual, Reads::kTile);
  s.add();
}

extern const TileLowerings kModulateTileLowerings = kModulateOps;

}  // namespace redline
