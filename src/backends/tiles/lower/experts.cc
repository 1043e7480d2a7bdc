// Mixtures of experts: moe_router, expert_gated_linear, expert_linear, expert_sum; concat_cols, concat_heads; and
// column_squares, expert_squares.
#include "backends/tiles/shared_lowering.h"
#include "graph/ops/column_squares.h"
#include "graph/ops/concat.h"
#include "graph/ops/expert_linear.h"
#include "graph/ops/head_linear.h"
#include "graph/ops/moe_router.h"

namespace redline {
namespace {

using RouterStage = TileStageBuilder<tiles::MoeRouter>;
using SumStage = TileStageBuilder<tiles::ExpertSum>;
using SquaresStage = TileStageBuilder<tiles::Squares>;
using ConcatStage = TileStageBuilder<tiles::Concat>;

Status lower_moe_router(TileLowerContext& c) {
  const auto& a = std::any_cast<const RouterAttrs&>(c.op().attrs);
  if (a.num_experts > tiles::MoeRouter::kMaxExperts)
    return unsupported("{} experts; this device has room for {}", a.num_experts, tiles::MoeRouter::kMaxExperts);
  RouterStage s(c, tiles::KernelId::kMoeRouter);
  s.args.num_experts = static_cast<int32_t>(a.num_experts);
  s.args.experts_per_token = static_cast<int32_t>(a.experts_per_token);
  s.args.num_groups = static_cast<int32_t>(a.num_groups);
  s.args.groups_per_token = static_cast<int32_t>(a.groups_per_token);
  s.args.is_sigmoid = a.score == RouterScore::kSigmoid ? 1 : 0;
  s.args.normalizes = a.normalizes ? 1 : 0;
  s.args.groups_by_two_best = a.groups_by_two_best ? 1 : 0;
  s.args.scale = a.scale;
  s.row_dim(s.args.row_dim, c.in(0).shape[0]);
  s.read(&RouterStage::Args::logits, c.op().inputs[0], Reads::kAll);
  if (c.op().inputs.size() > 1) REDLINE_TRY(s.dense_weight(&RouterStage::Args::bias, 1));
  s.write(&RouterStage::Args::weights, c.op().outputs[0]);
  s.write(&RouterStage::Args::offsets, c.op().outputs[1]);
  s.write(&RouterStage::Args::order, c.op().outputs[2]);
  s.write(&RouterStage::Args::chosen, c.add_temporary(c.op().name + ".chosen", c.out(2).shape));
  s.stage().set_work_partitions(1, a.experts_per_token);
  s.add();
  return {};
}

/// Adds the stage that multiplies the rows of each expert with its matrix; the matrices are inputs first to first +
/// num_experts - 1.
template <class Kernel>
Status add_expert_product(TileLowerContext& c, tiles::KernelId id, const char* part, size_t first, int bias,
                          bool by_token, ValueId y) {
  using Args = tiles::LinearArgs;
  const auto& a = std::any_cast<const ExpertLinearAttrs&>(c.op().attrs);
  TileStageBuilder<Kernel> s(c, id);
  REDLINE_TRY(set_product(s.args, c.in(first)));
  s.args.experts_per_token = by_token ? static_cast<int32_t>(a.experts_per_token) : 0;
  REDLINE_TRY(s.packed_weights(&Args::weight, first, static_cast<size_t>(a.num_experts), &Args::matrix_bytes));
  if (bias >= 0) REDLINE_TRY(s.dense_weight(&Args::bias, static_cast<size_t>(bias)));
  s.read(&Args::x, c.op().inputs[0], Reads::kAll);
  s.read(&Args::offsets, c.op().inputs[1], Reads::kAll);
  s.read(&Args::order, c.op().inputs[2], Reads::kAll);
  s.write(&Args::y, y);
  s.plan().name = c.op().name + part;
  const int64_t tiles = (s.args.out_features + tiles::kLinearCols - 1) / tiles::kLinearCols;
  s.stage().set_shared_partitions(static_cast<int>(a.num_experts * tiles), c.multiprocessors(), s.args.out_features);
  s.add();
  return {};
}

Status expert_product(TileLowerContext& c, const char* part, size_t first, int bias, bool by_token, ValueId y) {
  if (multiplies_in_f32(c, c.in(first).dtype))
    return add_expert_product<tiles::ExpertLinearF32>(c, tiles::KernelId::kExpertLinearF32, part, first, bias, by_token,
                                                      y);
  return add_expert_product<tiles::ExpertLinear>(c, tiles::KernelId::kExpertLinear, part, first, bias, by_token, y);
}

constexpr size_t kFirstMatrix = 3;

Status lower_expert_gated_linear(TileLowerContext& c) {
  const auto& a = std::any_cast<const ExpertLinearAttrs&>(c.op().attrs);
  const auto experts = static_cast<size_t>(a.num_experts);
  const ValueId gate = c.add_temporary(c.op().name + ".gate", c.out().shape);
  const ValueId up = c.add_temporary(c.op().name + ".up", c.out().shape);
  const int bias = a.has_bias ? static_cast<int>(kFirstMatrix + 2 * experts) : -1;
  REDLINE_TRY(expert_product(c, ".gate", kFirstMatrix, bias, true, gate));
  REDLINE_TRY(expert_product(c, ".up", kFirstMatrix + experts, bias < 0 ? -1 : bias + 1, true, up));
  add_elementwise(c, tiles::Elementwise::Op::kGated, gate, up, a.limit, a.activation);
  return {};
}

Status lower_expert_linear(TileLowerContext& c) {
  const auto& a = std::any_cast<const ExpertLinearAttrs&>(c.op().attrs);
  const int bias = a.has_bias ? static_cast<int>(kFirstMatrix) + static_cast<int>(a.num_experts) : -1;
  return expert_product(c, "", kFirstMatrix, bias, false, c.op().outputs[0]);
}

Status lower_expert_sum(TileLowerContext& c) {
  SumStage s(c, tiles::KernelId::kExpertSum);
  const int64_t cols = c.out().shape[1].constant();
  s.args.cols = static_cast<int32_t>(cols);
  s.args.experts_per_token = static_cast<int32_t>(c.in(1).shape[1].constant());
  s.read(&SumStage::Args::x, c.op().inputs[0], Reads::kAll);
  s.read(&SumStage::Args::weights, c.op().inputs[1], Reads::kAll);
  if (c.op().inputs.size() > 2) s.read(&SumStage::Args::shared, c.op().inputs[2], Reads::kTile);
  if (c.op().inputs.size() > 3) s.read(&SumStage::Args::gate, c.op().inputs[3], Reads::kRows);
  s.write(&SumStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(c.out().shape[0], cols, 1024, 8, c.row_parts());
  s.add();
  return {};
}

Status add_concat(TileLowerContext& c, int64_t heads) {
  ConcatStage s(c, tiles::KernelId::kConcat);
  const int64_t cols = c.out().shape[1].constant();
  s.args.cols = static_cast<int32_t>(cols);
  s.args.a_cols = static_cast<int32_t>(c.in(0).shape[1].constant() / heads);
  s.args.b_cols = static_cast<int32_t>(c.in(1).shape[1].constant() / heads);
  s.read(&ConcatStage::Args::a, c.op().inputs[0], Reads::kRows);
  s.read(&ConcatStage::Args::b, c.op().inputs[1], Reads::kRows);
  s.write(&ConcatStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(c.out().shape[0], cols, 1024, 8, c.row_parts());
  s.add();
  return {};
}

Status lower_concat_cols(TileLowerContext& c) { return add_concat(c, 1); }
Status lower_concat_heads(TileLowerContext& c) {
  return add_concat(c, std::any_cast<const HeadAttrs&>(c.op().attrs).num_heads);
}

Status lower_squares(TileLowerContext& c) {
  SquaresStage s(c, tiles::KernelId::kSquares);
  s.args.cols = static_cast<int32_t>(c.in(0).shape[1].constant());
  s.row_dim(s.args.row_dim, c.in(0).shape[0]);
  s.read(&SquaresStage::Args::x, c.op().inputs[0], Reads::kAll);
  if (c.op().def == &kExpertSquares) {
    const auto& a = std::any_cast<const ExpertSquaresAttrs&>(c.op().attrs);
    s.args.experts_per_token = a.by_expert ? 0 : static_cast<int32_t>(a.experts_per_token);
    s.read(&SquaresStage::Args::offsets, c.op().inputs[1], Reads::kAll);
    s.read(&SquaresStage::Args::order, c.op().inputs[2], Reads::kAll);
  }
  s.write(&SquaresStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(c.out().shape[0], c.out().shape[1].constant(), 256, 1, 1);
  s.add();
  return {};
}

constexpr TileLowering kExpertsOps[] = {
    {&kMoeRouter, lower_moe_router},       {&kExpertGatedLinear, lower_expert_gated_linear},
    {&kExpertLinear, lower_expert_linear}, {&kExpertSum, lower_expert_sum},
    {&kColumnSquares, lower_squares},      {&kExpertSquares, lower_squares},
    {&kConcatCols, lower_concat_cols},     {&kConcatHeads, lower_concat_heads},
};

}  // namespace

extern const TileLowerings kExpertsTileLowerings = kExpertsOps;

}  // namespace redline
