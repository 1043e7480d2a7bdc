#include "graph/ops/gated_linear.h"

#include <algorithm>

#include "backends/cpu/linear_adapters.h"
#include "backends/cpu/linear_lowering.h"
#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"
#include "graph/ops/activation.h"
#include "graph/ops/linear.h"
#include "kernels/cpu/linear_end.h"

namespace redline {
namespace {

struct Attrs {
  int64_t matrices;
  LinearKernels kernels[2];  // gate, up
  Activation activation;
  void (*activate)(const ActivationArgs&);
  bool tiles_end;  // linear_tiles computes the whole op, epilogue included
  int64_t features, in_features;
  int64_t col_bytes[2];  // of the packed weights
  PreparedOutput out;
  LinearAdapters adapters;
};

// Rows buffered per worker when the output layout is kI8Tiled, which is written kI8Chunk columns at a time. Their bytes
// stay below the 1 MiB from which linear_tiles_end.h uses non-temporal stores, because they are read again at once.
constexpr int64_t kI8Rows = 224;

// operands: x, gate, up, y, then, each null if absent: gate bias, up bias, x down^T of the adapters
void run(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t rows = tile.row_end;  // rows are not split
  LinearArgs product = {stage.operands[0],       a.in_features,  rows,          stage.operands[1],       a.features,
                        a.in_features,           tile.col_begin, tile.col_end,  stage.operand<float>(4), nullptr,
                        stage.operand<float>(3), a.features,     worker.scratch};
  const ActivationLayout in = a.kernels[0].layouts.for_rows(rows), out = a.out.layouts.for_rows(rows);
  // Adapters are added between product and activation, which a kernel that does all has no place for.
  const bool adapted = a.adapters.active(step);
  const bool does_all =
      a.tiles_end && !adapted && (in == ActivationLayout::kBf16Tiled || in == ActivationLayout::kI8Tiled);
  LinearEnd all = {&a.activation, a.matrices == 2 ? stage.operands[2] : nullptr, stage.operand<float>(5)};
  if (does_all && (out == ActivationLayout::kF32 || out == ActivationLayout::kBf16Tiled)) {
    if (out == ActivationLayout::kBf16Tiled) all.tiles = stage.operands[3];
    product.end = &all;
    return a.kernels[0].for_rows(rows)(product);
  }
  const int64_t block = out == ActivationLayout::kI8Tiled ? kI8Chunk : block_cols(rows, a.matrices);
  const int64_t lines = out == ActivationLayout::kI8Tiled ? kI8Rows : rows;
  for (int64_t begin = tile.col_begin; begin < tile.col_end; begin += block)
    for (int64_t row = 0; row < rows; row += lines) {
      const int64_t end = std::min(begin + block, tile.col_end), width = end - begin,
                    count = std::min(lines, rows - row);
      float* parts[2] = {static_cast<float*>(worker.buffer), static_cast<float*>(worker.buffer) + count * width};
      product.x = static_cast<const uint8_t*>(stage.operands[0]) + activation_layout_bytes(in, row, a.in_features);
      product.rows = count;
      product.n_begin = begin, product.n_end = end;
      product.y_stride = width;
      product.end = does_all ? &all : nullptr;
      for (int64_t i = 0; i < (does_all ? 1 : a.matrices); ++i) {
        product.weight = stage.operands[static_cast<size_t>(1 + i)];
        product.bias = stage.operand<float>(static_cast<size_t>(4 + i));
        product.y = parts[i] - begin;  // kernels index columns from the first of the matrix
        a.kernels[i].for_rows(rows)(product);
        if (adapted) a.adapters.add(step, static_cast<size_t>(i), product, row, stage.operand<float>(6), worker.buffer);
      }
      if (!does_all)
        a.activate({parts[0], width, a.matrices == 2 ? parts[1] : nullptr, width, parts[0], width, count, width,
                    a.activation});
      a.out.write(parts[0], width, rows, {row, row + count, begin, end, tile.index}, stage.operands[3]);
    }
}

FirstBytes first_weights(const CpuStage& stage, const Tile& tile) {
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
  LoweredStage stage = c.output_stage(run);
  stage.first_weights = first_weights;
  stage.col_begin = LowerContext::cut_columns(attrs->features, std::max(kFormGrain, c.out().layouts.grain()),
                                              linear_tiles(c, attrs->features * kMatrices, bytes * attrs->features));
  stage.buffer_bytes = block_bytes(stage.rows.eval(c.options().bounds), kMatrices);
  if (c.out().layouts.grain() == kI8Chunk)
    stage.buffer_bytes = std::max(stage.buffer_bytes, kI8Rows * kI8Chunk * kMatrices * int64_t{sizeof(float)});
  stage.reads = {{in[0], Reads::kAll}};
  std::vector<LinearAdapters::Matrix> adapted;
  for (size_t i = 0; i < kMatrices; ++i) adapted.push_back({op.adapters[i].site, op.adapters[i].first_feature});
  REDLINE_ASSIGN(attrs->adapters, LinearAdapters::lower(c, std::move(adapted), attrs->kernels[0].layouts, stage));
  stage.attrs = attrs;
  c.add_stage(std::move(stage), {c.at(in[0]), c.at(weight[0]), c.at(weight[1]), c.at(c.op().outputs[0]), c.at(bias[0]),
                                 c.at(bias[1]), attrs->adapters.operand(c)});
  return {};
}

}  // namespace

extern const CpuLowering kGatedLinearLowering = {&kGatedLinear, lower<2>};
extern const CpuLowering kActivatedLinearLowering = {&kActivatedLinear, lower<1>};

}  // namespace redline
