// add, add_row, scale, soft_cap, silu_mul, activation, gated_activation: one kernel.
#include "backends/tiles/shared_lowering.h"
#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/scale.h"
#include "graph/ops/silu_mul.h"
#include "graph/ops/soft_cap.h"

namespace redline {

using ElementwiseStage = TileStageBuilder<tiles::Elementwise>;

namespace {

using ElementOp = tiles::Elementwise::Op;

/// Returns a stage that writes output 0. Until b_stride is set, operand b is one row.
ElementwiseStage elementwise_stage(TileLowerContext& c, ElementOp op) {
  const int64_t cols = c.out().shape[1].constant();
  ElementwiseStage s(c, tiles::KernelId::kElementwise);
  s.args.op = op;
  s.args.cols = s.args.a_stride = static_cast<int32_t>(cols);
  s.write(&ElementwiseStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(c.out().shape[0], cols, 1024, 8, c.row_parts());
  return s;
}

}  // namespace

void add_elementwise(TileLowerContext& c, tiles::Elementwise::Op op, ValueId a, std::optional<ValueId> b, float number,
                     Activation activation) {
  ElementwiseStage s = elementwise_stage(c, op);
  s.args.number = number;
  s.args.activation = activation;
  s.args.b_stride = s.args.cols;
  s.read(&ElementwiseStage::Args::a, a, Reads::kTile);
  if (b) s.read(&ElementwiseStage::Args::b, *b, Reads::kTile);
  s.plan().in_place_of = a;
  s.add();
}

namespace {

/// Lowers an op with one or two inputs to the elementwise kernel.
Status lower_elementwise(TileLowerContext& c, ElementOp op, float number = 0,
                         Activation activation = Activation::kSilu) {
  const auto& inputs = c.op().inputs;
  add_elementwise(c, op, inputs[0], inputs.size() > 1 ? std::optional(inputs[1]) : std::nullopt, number, activation);
  return {};
}

Status lower_add(TileLowerContext& c) { return lower_elementwise(c, ElementOp::kAdd); }
Status lower_scale(TileLowerContext& c) {
  return lower_elementwise(c, ElementOp::kScale, std::any_cast<ScaleAttrs>(c.op().attrs).factor);
}
Status lower_soft_cap(TileLowerContext& c) {
  return lower_elementwise(c, ElementOp::kSoftCap, std::any_cast<SoftCapAttrs>(c.op().attrs).cap);
}
Status lower_silu_mul(TileLowerContext& c) { return lower_elementwise(c, ElementOp::kGated); }
Status lower_activation(TileLowerContext& c) {
  const auto& attrs = std::any_cast<const ActivationAttrs&>(c.op().attrs);
  return lower_elementwise(c, ElementOp::kActivation, 0, attrs.kind);
}
Status lower_gated_activation(TileLowerContext& c) {
  const auto& attrs = std::any_cast<const ActivationAttrs&>(c.op().attrs);
  if (!attrs.halves) return lower_elementwise(c, ElementOp::kGated, 0, attrs.kind);
  // [up, gate] in one matrix.
  ElementwiseStage s = elementwise_stage(c, ElementOp::kGated);
  s.args.activation = attrs.kind;
  s.args.a_begin = s.args.cols;
  s.args.a_stride = s.args.b_stride = 2 * s.args.cols;
  s.read(&ElementwiseStage::Args::a, c.op().inputs[0], Reads::kRows);
  s.read(&ElementwiseStage::Args::b, c.op().inputs[0], Reads::kRows);
  s.add();
  return {};
}

Status lower_add_row(TileLowerContext& c) {
  ElementwiseStage s = elementwise_stage(c, ElementOp::kAdd);
  REDLINE_TRY(s.dense_weight(&ElementwiseStage::Args::b, 1));
  s.read(&ElementwiseStage::Args::a, c.op().inputs[0], Reads::kTile);
  s.plan().in_place_of = c.op().inputs[0];
  s.add();
  return {};
}

constexpr TileLowering kElementwiseOps[] = {
    {&kAdd, lower_add},
    {&kAddRow, lower_add_row},
    {&kScale, lower_scale},
    {&kSoftCap, lower_soft_cap},
    {&kSiluMul, lower_silu_mul},
    {&kActivation, lower_activation},
    {&kGatedActivation, lower_gated_activation},
};

}  // namespace

extern const TileLowerings kElementwiseTileLowerings = kElementwiseOps;

}  // namespace redline
