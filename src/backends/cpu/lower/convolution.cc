#include "graph/ops/convolution.h"

#include <algorithm>

#include "backends/cpu/conv2d_lowering.h"
#include "backends/cpu/convolution_lowering.h"
#include "backends/cpu/convolution_operands.h"
#include "backends/cpu/cpu_target.h"
#include "tensor/weight_traits.h"

namespace redline {

ConvMethod choose_conv_method(const CpuKernels& kernels, bool exact_f32, const Graph& graph, const Op& op) {
  const auto& attrs = std::any_cast<const ConvolutionOpAttrs&>(op.attrs);
  const DType weight = graph.value(op.inputs[1]).dtype;
  const int64_t channels = graph.value(op.inputs[0]).shape[1].constant();
  const bool is_plain = weight == DType::kF32 || weight == DType::kF16 || weight == DType::kBF16;
  const auto square = SquareConv2d::of(attrs);
  if (!square || dtype_info(weight).is_block) {
    const bool is_depthwise =
        attrs.groups > 1 && attrs.groups == channels && graph.value(op.outputs[0]).shape[1].constant() == channels;
    return is_depthwise && is_plain && kernels.conv_f32 ? ConvMethod::kDepthwise : ConvMethod::kGather;
  }
  if (channels % kConvBlock != 0 || square->kernel > kConvMaxKernel) return ConvMethod::kPatches;
  if ((kernels.has_tile_unit || kernels.has_fast_bf16_dot) && !exact_f32 && weight_traits(weight).is_bf16_pairs)
    return ConvMethod::kBf16;
  // Patches that are rounded for the tile unit are faster than float32.
  const ActivationLayouts layouts = choose_linear(kernels, weight, exact_f32).layouts;
  return kernels.conv_f32 && is_plain && layouts.at[layouts.count - 1].layout == ActivationLayout::kF32
             ? ConvMethod::kF32
             : ConvMethod::kPatches;
}

namespace {

// Minimum number of rows for which a worker reads the whole weight. If each worker had fewer rows, several workers
// share rows and each takes some of the columns.
constexpr int64_t kRowsWorthTheWeight = 256;

// Maximum number of tasks per worker, and minimum rows of a task. More tasks than workers let idle workers steal. The
// time of a task with fewer rows is dominated by its prologue and by loading weights.
constexpr int kMaxTasksPerWorker = 4;
constexpr int64_t kRowsOfATask = 1024;

// Returns the tile of a task. It depends only on the grid and the sizes of the step. If the feature map is too small
// for all tasks, some tasks get no rows.
Tile partition(const TaskGrid& grid, int32_t index, const SymbolValues& sizes) {
  const int64_t rows = grid.rows.eval(sizes), width = grid.row_unit.eval(sizes);
  const int workers = grid.row_parts / kMaxTasksPerWorker;
  int per_worker = kMaxTasksPerWorker;
  while (per_worker > 1 && rows / (workers * per_worker) < kRowsOfATask) per_worker /= 2;
  const int step = kMaxTasksPerWorker / per_worker;
  if (rows == 0 || index % step != 0) return {0, 0, 0, 0, index};
  const int tasks = workers * per_worker, task = index / step;
  int parts = tasks;
  while (parts > 1 && (tasks % parts != 0 || rows / parts < kRowsWorthTheWeight)) --parts;
  const int col_parts = tasks / parts, part = task / col_parts, col = task % col_parts;
  const int64_t image_rows = rows / width, panels = (grid.cols + kRowPanelRows - 1) / kRowPanelRows;
  return {.row_begin = image_rows * part / parts * width,
          .row_end = image_rows * (part + 1) / parts * width,
          .col_begin = std::min(grid.cols, panels * col / col_parts * kRowPanelRows),
          .col_end = std::min(grid.cols, panels * (col + 1) / col_parts * kRowPanelRows),
          .index = index};
}

Status lower_convolution(LowerContext& c) {
  const ConvMethod method = choose_conv_method(c.kernels(), c.options().exact_f32, c.graph(), c.op());
  switch (method) {
    case ConvMethod::kPatches: return lower_conv2d_patches(c);
    case ConvMethod::kGather: return lower_convolution_gather(c);
    case ConvMethod::kDepthwise: return lower_convolution_depthwise(c);
    case ConvMethod::kBf16:
    case ConvMethod::kF32: break;
  }
  return lower_conv2d_tiles(c, method);
}

constexpr CpuLowering kConvolutionOps[] = {{&kConvolution, lower_convolution}};

}  // namespace

TaskGrid convolution_grid(const LowerContext& c, const ConvolutionOpAttrs& op) {
  TaskGrid grid = TaskGrid::of(c.out().shape[0], c.out().shape[1].constant());
  grid.kind = TaskGrid::Kind::kFunction;
  grid.row_unit = op.out_sizes.size() > 1 ? op.out_sizes.back() : Dim(1);
  grid.row_parts = c.workers() * kMaxTasksPerWorker;
  grid.partition = partition;
  return grid;
}

void Conv2dAdapters::reserve(const LowerContext& c, AdapterSite& site, int64_t max_rows, int64_t& buffer_bytes) {
  const auto aligned = [](int64_t n) { return (n + 63) / 64 * 64; };
  up = AdapterExpand::choose_plain(c.kernels(), c.options().exact_f32);
  site.up_type = site.down_type = up.type;
  at = aligned(buffer_bytes);
  bytes = aligned(max_rows * site.max_rank * int64_t{sizeof(float)});
  buffer_bytes = at + bytes + up.buffer_bytes(max_rows, site.max_rank);
}

void Conv2dAdapters::add_up(const AdapterFactors& factors, float scale, const Tile& tile, int64_t num_rows,
                            int64_t segment_rows, int64_t out_features, float* y, WorkerContext& worker) const {
  float* t = rows(worker);
  for (int64_t i = 0; i < num_rows * factors.rank; ++i) t[i] *= scale;
  LinearArgs args = {};
  args.rows = num_rows;
  args.out_features = args.y_stride = out_features;
  args.n_begin = tile.col_begin;
  args.n_end = tile.col_end;
  args.y = y;
  args.scratch = worker.scratch;
  up.add(args, factors, t, factors.rank, segment_rows, reinterpret_cast<uint8_t*>(t) + bytes);
  AdapterExpand::add_bias(args, factors, scale);
}

Status Conv2dParams::init(LowerContext& c) {
  op = std::any_cast<const ConvolutionOpAttrs&>(c.op().attrs);
  square = SquareConv2d::of(op).value();
  add = c.kernels().add;
  channels = c.in(0).shape[1].constant();
  out_features = c.out().shape[1].constant();
  REDLINE_ASSIGN(weight, c.packed_weight(1));
  if (const size_t input = ConvolutionInputIndex(op).bias) {
    REDLINE_ASSIGN(bias, c.dense_weight(input));
  }
  return {};
}

void Conv2dParams::add_operands(const LowerContext& c, LoweredStage& stage) {
  add_convolution_operands(*this, c, stage);
  stage.buffer_bytes = block_bytes + kConvMaxItems * (out_features + 2 * channels) * int64_t{sizeof(float)};
}

const float* Conv2dParams::bias_of_items(int64_t item, int64_t count, const WorkerContext& worker) const {
  if (!item_bias) return bias;
  const float* own = item_bias + item * out_features;
  if (!bias) return own;
  float* both = item_buffer(worker);
  for (int64_t i = 0; i < count; ++i)
    add({.a = bias, .b = own + i * out_features, .y = both + i * out_features, .count = out_features});
  return both;
}

ConvPatchesArgs Conv2dParams::input_of(const Conv2dGeometry& s, int64_t item) const {
  ConvPatchesArgs args = {};
  args.x = x + item * s.in_pixels() * channels;
  args.in_height = s.in_height;
  args.in_width = s.in_width;
  args.channels = channels;
  args.out_height = s.out_height;
  args.out_width = s.out_width;
  args.kernel = square.kernel;
  args.stride = square.stride;
  args.pad = square.pad_before;
  args.upsample = op.upsample;
  return args;
}

extern const CpuLowerings kConvolutionLowerings = kConvolutionOps;

}  // namespace redline
