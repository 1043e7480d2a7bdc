#include "graph/ops/linear.h"

#include <algorithm>

#include "graph/lower.h"
#include "graph/reference.h"
#include "tensor/packed_weight.h"

namespace redline {

Value linear(GraphBuilder& g, Value x, Value weight, Value bias) {
  if (!x.valid() || !weight.valid()) return {};
  const ValueInfo& xi = g.info(x);
  const ValueInfo& w = g.info(weight);
  if (w.shape.size() != 2)
    return g.fail(invalid_argument("linear: {} must be a matrix, not {}", w.name, to_string(w.shape)));
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !(xi.shape[1] == w.shape[1]))
    return g.fail(invalid_argument("linear: {} is {}, x is {}: the last axes must agree", w.name, to_string(w.shape),
                                   to_string(xi.shape)));
  std::vector<Value> inputs = {x, weight};
  if (bias.valid()) {
    const ValueInfo& b = g.info(bias);
    if (b.shape.size() != 1 || !(b.shape[0] == w.shape[0]))
      return g.fail(
          invalid_argument("linear: {} is {}, expected [{}]", b.name, to_string(b.shape), w.shape[0].to_string()));
    inputs.push_back(bias);
  }
  return g.add(kLinear, inputs, DType::kF32, {xi.shape[0], w.shape[0]}, LinearAttrs{bias.valid(), false});
}

namespace {

Status reference(ReferenceContext& c) {
  const HostTensor& x = c.in(0);
  const HostTensor& weight = c.in(1);
  const auto& attrs = c.attrs<LinearAttrs>();
  const HostTensor* bias = attrs.has_bias ? &c.in(2) : nullptr;
  const HostTensor* residual = attrs.has_residual ? &c.in(c.num_inputs() - 1) : nullptr;
  for (int64_t m = 0; m < x.rows(); ++m)
    for (int64_t n = 0; n < weight.rows(); ++n) {
      double sum = 0;
      for (int64_t k = 0; k < x.cols(); ++k) sum += x.row(m)[k] * weight.row(n)[k];
      if (bias) sum += bias->data[static_cast<size_t>(n)];
      if (residual) sum += residual->row(m)[n];
      c.out().row(m)[n] = sum;
    }
  return {};
}

struct Attrs {
  LinearKernels kernels;
  int64_t out_features, in_features;
  int64_t col_bytes;  // of the packed weight
};

// operands: x, weight, y, bias or null, residual or null
void run(const Stage& stage, const Tile& tile, const StepContext&, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  // Rows are not cut: a prepared x is one piece.
  a.kernels.for_rows(tile.row_end)({stage.operands[0], a.in_features, tile.row_end, stage.operands[1], a.out_features,
                                    a.in_features, tile.col_begin, tile.col_end, stage.operand<float>(3),
                                    stage.operand<float>(4), stage.operand<float>(2), a.out_features, worker.scratch});
}

FirstBytes first_weights(const Stage& stage, const Tile& tile) {
  return {{static_cast<const uint8_t*>(stage.operands[1]) + stage.attrs_as<Attrs>().col_bytes * tile.col_begin},
          {stage.attrs_as<Attrs>().col_bytes * (tile.col_end - tile.col_begin)}};
}

constexpr int64_t kTilesPerWorker = 4;
constexpr int64_t kMinTileBytes = 32 << 10;

Status lower(LowerContext& c) {
  const ValueInfo& w = c.in(1);
  const auto& attrs = std::any_cast<const LinearAttrs&>(c.op().attrs);
  REDLINE_ASSIGN(const LinearKernels kernels, linear_kernels(c, 1));
  const int64_t n = w.shape[0].constant(), k = w.shape[1].constant();
  REDLINE_ASSIGN(void* weight, c.packed_weight(1));
  void* bias = nullptr;
  if (attrs.has_bias) {
    REDLINE_ASSIGN(bias, c.dense_weight(2));
  }
  Stage stage = c.output_stage(run);
  stage.first_weights = first_weights;
  stage.col_begin = LowerContext::cut_columns(n, kStripRows, linear_tiles(c, row_bytes(w.dtype, k) * n));
  stage.reads = {{c.op().inputs[0], Reads::kAll}};
  LowerContext::Operand residual = c.at(static_cast<void*>(nullptr));
  if (attrs.has_residual) {
    const ValueId id = c.op().inputs.back();
    residual = c.at(id);
    stage.reads.push_back({id, Reads::kTile});
    stage.in_place_of = id;
  }
  stage.attrs = std::make_shared<Attrs>(Attrs{kernels, n, k, packed_col_bytes(w)});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(weight), c.at(c.op().outputs[0]), c.at(bias), residual});
  return {};
}

std::string describe(const std::any& any) {
  const auto& attrs = std::any_cast<const LinearAttrs&>(any);
  return fmt::format("{}{}", attrs.has_bias ? "+bias" : "", attrs.has_residual ? "+residual" : "");
}

Dim flops(const Graph& graph, const Op& op) {
  const ValueInfo& weight = graph.value(op.inputs[1]);
  return graph.value(op.inputs[0]).shape[0] * weight.shape[0] * weight.shape[1] * Dim(2);
}

}  // namespace

Result<LinearKernels> linear_kernels(const LowerContext& c, size_t i) {
  const ValueInfo& w = c.in(i);
  const LinearKernels kernels = choose_linear(c.kernels(), w.dtype, c.options().exact_f32);
  if (!kernels.run[0])
    return unsupported("{} has type {}, which the linear kernels do not read", w.name, dtype_info(w.dtype).name);
  if (!(c.in(0).forms == kernels.forms)) return internal("{} is not in the forms that its product reads", c.in(0).name);
  return kernels;
}

int64_t packed_col_bytes(const ValueInfo& weight) {
  return packed_bytes(weight.dtype, kStripRows, weight.shape[1].constant()) / kStripRows;
}

int linear_tiles(const LowerContext& c, int64_t weight_bytes) {
  const int64_t most = std::max<int64_t>(c.workers(), weight_bytes / kMinTileBytes);
  return static_cast<int>(std::min<int64_t>(c.workers() * kTilesPerWorker, most));
}

const OpDef kLinear = {
    .name = "linear", .reference = reference, .lower = lower, .describe = describe, .num_matrices = 1, .flops = flops};

}  // namespace redline
