#include "graph/ops/gated_linear.h"

#include <algorithm>

#include "graph/lower.h"
#include "graph/ops/activation.h"
#include "graph/ops/linear.h"
#include "graph/prepared_output.h"
#include "graph/reference.h"
#include "kernels/cpu/linear_end.h"

namespace redline {
namespace {

template <int kMatrices>
Status reference(ReferenceContext& c) {
  const HostTensor& x = c.in(0);
  const auto& attrs = c.attrs<GatedLinearAttrs>();
  auto product = [&](size_t matrix, int64_t m, int64_t n) {
    const HostTensor& weight = c.in(1 + matrix);
    double sum = attrs.has_bias ? c.in(1 + kMatrices + matrix).data[static_cast<size_t>(n)] : 0.0;
    for (int64_t k = 0; k < x.cols(); ++k) sum += x.row(m)[k] * weight.row(n)[k];
    return sum;
  };
  for (int64_t m = 0; m < x.rows(); ++m)
    for (int64_t n = 0; n < c.out().cols(); ++n) {
      const double value = activation_of(attrs.activation, product(0, m, n));
      c.out().row(m)[n] = kMatrices == 1 ? value : value * product(1, m, n);
    }
  return {};
}

struct Attrs {
  int64_t matrices;
  LinearKernels kernels[2];  // gate, up
  Activation activation;
  void (*activate)(const ActivationArgs&);
  bool tiles_end;  // linear_tiles does all of it
  int64_t features, in_features;
  int64_t col_bytes[2];  // of the packed weights
  PreparedOutput out;
};

// Rows that pass through the worker's buffer where what is stored as kI8 takes kI8Chunk columns of them at once: less than the 1 MiB from
// which linear_tiles_end.h writes past the caches, for they are read again at once.
constexpr int64_t kI8Rows = 224;

// operands: x, gate, up, y, gate bias or null, up bias or null
void run(const Stage& stage, const Tile& tile, const StepContext&, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t rows = tile.row_end;  // not cut
  LinearArgs product = {stage.operands[0],       a.in_features,  rows,          stage.operands[1],       a.features,
                        a.in_features,           tile.col_begin, tile.col_end,  stage.operand<float>(4), nullptr,
                        stage.operand<float>(3), a.features,     worker.scratch};
  const XForm in = a.kernels[0].forms.for_rows(rows), out = a.out.forms.for_rows(rows);
  const bool does_all = a.tiles_end && (in == XForm::kTiles || in == XForm::kI8);
  LinearEnd all = {&a.activation, a.matrices == 2 ? stage.operands[2] : nullptr, stage.operand<float>(5)};
  if (does_all && (out == XForm::kF32 || out == XForm::kTiles)) {
    if (out == XForm::kTiles) all.tiles = stage.operands[3];
    product.end = &all;
    return a.kernels[0].for_rows(rows)(product);
  }
  const int64_t block = out == XForm::kI8 ? kI8Chunk : block_cols(rows, a.matrices);
  const int64_t lines = out == XForm::kI8 ? kI8Rows : rows;
  for (int64_t begin = tile.col_begin; begin < tile.col_end; begin += block)
    for (int64_t row = 0; row < rows; row += lines) {
      const int64_t end = std::min(begin + block, tile.col_end), width = end - begin,
                    count = std::min(lines, rows - row);
      float* parts[2] = {static_cast<float*>(worker.buffer), static_cast<float*>(worker.buffer) + count * width};
      product.x = static_cast<const uint8_t*>(stage.operands[0]) + x_form_bytes(in, row, a.in_features);
      product.rows = count;
      product.n_begin = begin, product.n_end = end;
      product.y_stride = width;
      product.end = does_all ? &all : nullptr;
      for (int64_t i = 0; i < (does_all ? 1 : a.matrices); ++i) {
        product.weight = stage.operands[static_cast<size_t>(1 + i)];
        product.bias = stage.operand<float>(static_cast<size_t>(4 + i));
        product.y = parts[i] - begin;  // kernels count columns from the first of the matrix
        a.kernels[i].for_rows(rows)(product);
      }
      if (!does_all)
        a.activate({parts[0], width, a.matrices == 2 ? parts[1] : nullptr, width, parts[0], width, count, width,
                    a.activation});
      a.out.write(parts[0], width, rows, {row, row + count, begin, end, tile.index}, stage.operands[3]);
    }
}

FirstBytes first_weights(const Stage& stage, const Tile& tile) {
  const auto& a = stage.attrs_as<Attrs>();
  FirstBytes first;
  for (size_t i = 0; i < static_cast<size_t>(a.matrices); ++i) {
    first.data[i] = static_cast<const uint8_t*>(stage.operands[1 + i]) + a.col_bytes[i] * tile.col_begin;
    first.bytes[i] = a.col_bytes[i] * (tile.col_end - tile.col_begin);
  }
  return first;
}

template <int kMatrices>
Status lower(LowerContext& c) {
  const auto& in = c.op().inputs;
  const auto& op = std::any_cast<const GatedLinearAttrs&>(c.op().attrs);
  auto attrs = std::make_shared<Attrs>();
  void *weight[2] = {nullptr, nullptr}, *bias[2] = {nullptr, nullptr};
  int64_t bytes = 0;
  for (size_t i = 0; i < kMatrices; ++i) {
    REDLINE_ASSIGN(attrs->kernels[i], linear_kernels(c, 1 + i));
    attrs->col_bytes[i] = packed_col_bytes(c.in(1 + i));
    REDLINE_ASSIGN(weight[i], c.packed_weight(1 + i));
    bytes += row_bytes(c.in(1 + i).dtype, c.in(1 + i).shape[1].constant());
    if (op.has_bias) {
      REDLINE_ASSIGN(bias[i], c.dense_weight(1 + kMatrices + i));
    }
  }
  attrs->matrices = kMatrices;
  attrs->activation = op.activation;
  attrs->activate = c.kernels().activation;
  attrs->tiles_end = c.kernels().has_tile_unit && c.in(1).dtype == c.in(kMatrices).dtype;
  attrs->features = c.in(1).shape[0].constant();
  attrs->in_features = c.in(1).shape[1].constant();
  REDLINE_ASSIGN(attrs->out, PreparedOutput::make(c));
  Stage stage = c.output_stage(run);
  stage.first_weights = first_weights;
  stage.col_begin = LowerContext::cut_columns(attrs->features, std::max(kFormGrain, c.out().forms.grain()),
                                              linear_tiles(c, attrs->features * kMatrices, bytes * attrs->features));
  stage.buffer_bytes = block_bytes(stage.rows.eval(c.options().bounds), kMatrices);
  if (c.out().forms.grain() == kI8Chunk)
    stage.buffer_bytes = std::max(stage.buffer_bytes, kI8Rows * kI8Chunk * kMatrices * int64_t{sizeof(float)});
  stage.reads = {{in[0], Reads::kAll}};
  stage.attrs = attrs;
  c.add_stage(std::move(stage),
              {c.at(in[0]), c.at(weight[0]), c.at(weight[1]), c.at(c.op().outputs[0]), c.at(bias[0]), c.at(bias[1])});
  return {};
}

std::string describe(const std::any& any) {
  const auto& attrs = std::any_cast<const GatedLinearAttrs&>(any);
  return fmt::format("{}{}", activation_name(attrs.activation), attrs.has_bias ? ", +bias" : "");
}

Dim flops(const Graph& graph, const Op& op) {
  const ValueInfo& weight = graph.value(op.inputs[1]);
  return graph.value(op.inputs[0]).shape[0] * weight.shape[0] * weight.shape[1] * Dim(2 * op.def->num_matrices);
}

}  // namespace

const OpDef kGatedLinear = {.name = "gated_linear",
                            .reference = reference<2>,
                            .lower = lower<2>,
                            .describe = describe,
                            .num_matrices = 2,
                            .prepares_output = true,
                            .flops = flops};
const OpDef kActivatedLinear = {.name = "activated_linear",
                                .reference = reference<1>,
                                .lower = lower<1>,
                                .describe = describe,
                                .num_matrices = 1,
                                .prepares_output = true,
                                .flops = flops};

}  // namespace redline
