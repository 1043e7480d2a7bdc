#include "graph/ops/linear.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/linear_adapters.h"
#include "backends/cpu/linear_lowering.h"
#include "graph/items.h"
#include "tensor/packed_weight.h"

namespace redline {
namespace {

struct LinearParams {
  LinearKernels kernels;
  const void* weight;
  const float* bias;  // or nullptr
  int64_t out_features, in_features;
  int64_t col_bytes;  // of the packed weight
  Dim rows;           // of the step, which determine kernel and layout
  // with a gate:
  Dim rows_per_item;
  int64_t gate_column, table_columns;
  Operand<const uint8_t> x;
  Operand<const float> residual, gate_table;  // null if absent
  Operand<float> y;
  LinearAdapters adapters;
};

/// Handles rows that start in the middle of a row panel of x: their part of the panel is computed in the worker's
/// buffer, starting from the panel's first row, because the rows before them belong to another item.
void run_shared_panel(LinearArgs args, void (*kernel)(const LinearArgs&), int64_t skip, void* buffer) {
  const int64_t width = args.n_end - args.n_begin, row_bytes = width * int64_t{sizeof(float)};
  auto* part = static_cast<float*>(buffer);
  float* y = args.y + args.n_begin;
  for (int64_t r = skip; r < args.rows; ++r)
    std::memcpy(part + r * width, args.residual + r * args.y_stride + args.n_begin, static_cast<size_t>(row_bytes));
  const int64_t y_stride = args.y_stride;
  args.y = part - args.n_begin;
  args.residual = args.y;
  args.y_stride = width;
  kernel(args);
  for (int64_t r = skip; r < args.rows; ++r)
    std::memcpy(y + r * y_stride, part + r * width, static_cast<size_t>(row_bytes));
}

void run_linear(const LinearParams& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const int64_t all = p.rows.eval(step.sizes), first = tile.row_begin, rows = tile.row_end - first;
  auto* const kernel = p.kernels.for_rows(all);
  const ActivationLayout form = p.kernels.layouts.for_rows(all);
  const LinearArgs args = {.x = p.x + activation_layout_bytes(form, first, p.in_features),
                           .x_stride = p.in_features,
                           .rows = rows,
                           .weight = p.weight,
                           .out_features = p.out_features,
                           .in_features = p.in_features,
                           .n_begin = tile.col_begin,
                           .n_end = tile.col_end,
                           .bias = p.bias,
                           .residual = p.residual ? p.residual + first * p.out_features : nullptr,
                           .y = p.y + first * p.out_features,
                           .y_stride = p.out_features,
                           .scratch = worker.scratch};
  if (!p.gate_table) return p.adapters.multiply(kernel, args, step, 0, first, worker);
  const int64_t panel = activation_layout_panel(form);
  auto part = [&](int64_t item, int64_t begin, int64_t end) {
    LinearArgs of_item = args;
    of_item.x = p.x + activation_layout_bytes(form, begin, p.in_features);
    of_item.rows = end - begin;
    of_item.y += begin * p.out_features;
    of_item.residual += begin * p.out_features;
    of_item.gate = p.gate_table + item * p.table_columns + p.gate_column;
    return of_item;
  };
  for_items(0, rows, p.rows_per_item.eval(step.sizes), [&](int64_t item, int64_t begin, int64_t end) {
    if (const int64_t skip = begin % panel; skip > 0) {
      const int64_t stop = std::min(end, begin - skip + panel);
      run_shared_panel(part(item, begin - skip, stop), kernel, skip, worker.buffer);
      begin = stop;
    }
    if (begin < end) kernel(part(item, begin, end));
  });
  if (!p.adapters.active(step)) return;
  for_items(0, rows, p.rows_per_item.eval(step.sizes), [&](int64_t item, int64_t begin, int64_t end) {
    p.adapters.add(step, 0, part(item, begin, end), begin, worker);
  });
}

FirstBytes linear_first_weights(const LinearParams& p, const Tile& tile) {
  return {{static_cast<const uint8_t*>(p.weight) + p.col_bytes * tile.col_begin},
          {p.col_bytes * (tile.col_end - tile.col_begin)}};
}

constexpr int64_t kTilesPerWorker = 4;

/// Maximum width of a tile. Every tile reads all of x; with hundreds of rows, few of which fit in the L2 cache, a tile
/// of 256 columns runs at three quarters of the speed of one of 1024.
constexpr int64_t kTileCols = 1024;

constexpr int64_t kMinTileBytes = 32 << 10;

Status lower_linear(LowerContext& c) {
  const auto& in = c.op().inputs;
  const ValueInfo& w = c.in(1);
  const auto& attrs = std::any_cast<const LinearAttrs&>(c.op().attrs);
  const int64_t n = w.shape[0].constant(), k = w.shape[1].constant();
  auto params = std::make_shared<LinearParams>();
  REDLINE_ASSIGN(params->kernels, linear_kernels(c, 1));
  REDLINE_ASSIGN(params->weight, c.packed_weight(1));
  if (attrs.has_bias) {
    REDLINE_ASSIGN(params->bias, c.dense_weight(2));
  }
  params->out_features = n;
  params->in_features = k;
  params->rows = c.out().shape[0];
  params->col_bytes = packed_col_bytes(w);
  LoweredStage stage = c.output_stage<run_linear, linear_first_weights>(params);
  // Kernels take two row panels at a time, and compute the second for nothing where there is none.
  stage.grid.col_begin = LowerContext::cut_columns(n, 2 * kRowPanelRows, linear_tiles(c, n, row_bytes(w.dtype, k) * n));
  if (!attrs.has_gate) stage.row_cuts = RowCuts::kAtRows;  // items of a batch are cut by the task
  stage.read(params->x, in[0], Reads::kRows);
  if (attrs.has_gate) {
    params->rows_per_item = attrs.rows_per_item;
    params->gate_column = attrs.gate_column;
    params->table_columns = c.in(in.size() - 1).shape[1].constant();
    stage.read(params->gate_table, in.back(), Reads::kAll);
    int64_t widest = 0;
    for (size_t i = 0; i + 1 < stage.grid.col_begin.size(); ++i)
      widest = std::max(widest, stage.grid.col_begin[i + 1] - stage.grid.col_begin[i]);
    stage.buffer_bytes = kXTileRows * widest * int64_t{sizeof(float)};
  }
  if (attrs.has_residual) {
    const ValueId id = in[in.size() - 1 - attrs.has_gate];
    stage.read(params->residual, id, Reads::kTile);
    stage.in_place_of = id;
  }
  stage.write(params->y, c.op().outputs[0]);
  REDLINE_TRY(params->adapters.lower(c, {{attrs.adapters}}, params->kernels.layouts, stage));
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kLinearOps[] = {{&kLinear, lower_linear}};

}  // namespace

Result<LinearKernels> kernels_of_weight(const LowerContext& c, const ValueInfo& weight) {
  const LinearKernels kernels =
      choose_linear(c.kernels(), weight.dtype, c.options().exact_f32, c.options().batch_invariance);
  if (!kernels.run[0])
    return unsupported("{} has type {}, which the linear kernels do not read", weight.name,
                       dtype_info(weight.dtype).name);
  return kernels;
}

Result<LinearKernels> linear_kernels(const LowerContext& c, size_t i) {
  REDLINE_ASSIGN(const LinearKernels kernels, kernels_of_weight(c, c.in(i)));
  if (!(c.in(0).layouts == kernels.layouts))
    return internal("{} has other layouts than the kernels of its product read", c.in(0).name);
  return kernels;
}

int64_t packed_col_bytes(const ValueInfo& weight) {
  return packed_bytes(weight.dtype, kRowPanelRows, weight.shape[1].constant()) / kRowPanelRows;
}

int linear_tiles(const LowerContext& c, int64_t cols, int64_t weight_bytes) {
  const int64_t most = std::max<int64_t>(c.workers(), weight_bytes / kMinTileBytes);
  const int64_t each = std::clamp<int64_t>(cols / (kTileCols * c.workers()), 1, kTilesPerWorker);
  return static_cast<int>(std::min<int64_t>(c.workers() * each, most));
}

namespace {
constexpr int64_t kLinearBlockBytes = 512 << 10;
}

int64_t block_cols(int64_t rows, int64_t matrices) {
  const int64_t col_bytes = std::max<int64_t>(rows, 1) * matrices * int64_t{sizeof(float)};
  return std::max(kFormGrain, kLinearBlockBytes / col_bytes / kFormGrain * kFormGrain);
}

int64_t block_bytes(int64_t max_rows, int64_t matrices) {
  return std::max(kLinearBlockBytes, max_rows * block_cols(max_rows, matrices) * matrices * int64_t{sizeof(float)});
}

extern const CpuLowerings kLinearLowerings = kLinearOps;

}  // namespace redline
