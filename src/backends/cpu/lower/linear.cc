#include "graph/ops/linear.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/linear_adapters.h"
#include "backends/cpu/linear_lowering.h"
#include "graph/items.h"
#include "tensor/packed_weight.h"

namespace redline {
namespace {

struct Attrs {
  LinearKernels kernels;
  int64_t out_features, in_features;
  int64_t col_bytes;  // of the packed weight
  // with a gate:
  Dim rows_per_item;
  int64_t gate_column, table_columns;
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

// operands: x, weight, y, then, each null if absent: bias, residual, gate table, x down^T of the adapters
void run(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  // Rows are not split: a prepared x is one piece.
  const int64_t rows = tile.row_end;
  auto* const kernel = a.kernels.for_rows(rows);
  LinearArgs args = {
      stage.operands[0],       a.in_features,  rows,          stage.operands[1],       a.out_features,
      a.in_features,           tile.col_begin, tile.col_end,  stage.operand<float>(3), stage.operand<float>(4),
      stage.operand<float>(2), a.out_features, worker.scratch};
  const auto* table = stage.operand<float>(5);
  if (!table) {
    kernel(args);
    return a.adapters.add(step, 0, args, 0, stage.operand<float>(6), worker.buffer);
  }
  const ActivationLayout form = a.kernels.layouts.for_rows(rows);
  const int64_t panel = activation_layout_panel(form);
  auto part = [&](int64_t item, int64_t begin, int64_t end) {
    LinearArgs p = args;
    p.x = static_cast<const uint8_t*>(args.x) + activation_layout_bytes(form, begin, a.in_features);
    p.rows = end - begin;
    p.y += begin * a.out_features;
    p.residual += begin * a.out_features;
    p.gate = table + item * a.table_columns + a.gate_column;
    return p;
  };
  for_items(0, rows, a.rows_per_item.eval(step.sizes), [&](int64_t item, int64_t begin, int64_t end) {
    if (const int64_t skip = begin % panel; skip > 0) {
      const int64_t stop = std::min(end, begin - skip + panel);
      run_shared_panel(part(item, begin - skip, stop), kernel, skip, worker.buffer);
      begin = stop;
    }
    if (begin < end) kernel(part(item, begin, end));
  });
  if (!a.adapters.active(step)) return;
  for_items(0, rows, a.rows_per_item.eval(step.sizes), [&](int64_t item, int64_t begin, int64_t end) {
    a.adapters.add(step, 0, part(item, begin, end), begin, stage.operand<float>(6), worker.buffer);
  });
}

FirstBytes first_weights(const CpuStage& stage, const Tile& tile) {
  return {{static_cast<const uint8_t*>(stage.operands[1]) + stage.attrs_as<Attrs>().col_bytes * tile.col_begin},
          {stage.attrs_as<Attrs>().col_bytes * (tile.col_end - tile.col_begin)}};
}

constexpr int64_t kTilesPerWorker = 4;

/// Maximum width of a tile. Every tile reads all of x; with hundreds of rows, few of which fit in the L2 cache, a tile
/// of 256 columns runs at three quarters of the speed of one of 1024.
constexpr int64_t kTileCols = 1024;

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
  LoweredStage stage = c.output_stage(run);
  stage.first_weights = first_weights;
  stage.col_begin = LowerContext::cut_columns(n, kStripRows, linear_tiles(c, n, row_bytes(w.dtype, k) * n));
  stage.reads = {{c.op().inputs[0], Reads::kAll}};
  LowerContext::Operand residual = c.at(static_cast<void*>(nullptr)), table = residual;
  auto stage_attrs =
      std::make_shared<Attrs>(Attrs{kernels, n, k, packed_col_bytes(w), attrs.rows_per_item, attrs.gate_column, 0, {}});
  if (attrs.has_gate) {
    const ValueId id = c.op().inputs.back();
    table = c.at(id);
    stage_attrs->table_columns = c.graph().value(id).shape[1].constant();
    stage.reads.push_back({id, Reads::kAll});
    int64_t widest = 0;
    for (size_t i = 0; i + 1 < stage.col_begin.size(); ++i)
      widest = std::max(widest, stage.col_begin[i + 1] - stage.col_begin[i]);
    stage.buffer_bytes = kXTileRows * widest * int64_t{sizeof(float)};
  }
  if (attrs.has_residual) {
    const ValueId id = c.op().inputs[c.op().inputs.size() - 1 - attrs.has_gate];
    residual = c.at(id);
    stage.reads.push_back({id, Reads::kTile});
    stage.in_place_of = id;
  }
  REDLINE_ASSIGN(stage_attrs->adapters, LinearAdapters::lower(c, {{attrs.adapters}}, kernels.layouts, stage));
  stage.attrs = stage_attrs;
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(weight), c.at(c.op().outputs[0]), c.at(bias), residual,
                                 table, stage_attrs->adapters.operand(c)});
  return {};
}

}  // namespace

Result<LinearKernels> linear_kernels(const LowerContext& c, size_t i) {
  const ValueInfo& w = c.in(i);
  const LinearKernels kernels = choose_linear(c.kernels(), w.dtype, c.options().exact_f32);
  if (!kernels.run[0])
    return unsupported("{} has type {}, which the linear kernels do not read", w.name, dtype_info(w.dtype).name);
  if (!(c.in(0).layouts == kernels.layouts))
    return internal("{} is not in the forms that its product reads", c.in(0).name);
  return kernels;
}

int64_t packed_col_bytes(const ValueInfo& weight) {
  return packed_bytes(weight.dtype, kStripRows, weight.shape[1].constant()) / kStripRows;
}

int linear_tiles(const LowerContext& c, int64_t cols, int64_t weight_bytes) {
  const int64_t most = std::max<int64_t>(c.workers(), weight_bytes / kMinTileBytes);
  const int64_t each = std::clamp<int64_t>(cols / (kTileCols * c.workers()), 1, kTilesPerWorker);
  return static_cast<int>(std::min<int64_t>(c.workers() * each, most));
}

namespace {
constexpr int64_t kBlockBytes = 512 << 10;
}

int64_t block_cols(int64_t rows, int64_t matrices) {
  const int64_t col_bytes = std::max<int64_t>(rows, 1) * matrices * int64_t{sizeof(float)};
  return std::max(kFormGrain, kBlockBytes / col_bytes / kFormGrain * kFormGrain);
}

int64_t block_bytes(int64_t most_rows, int64_t matrices) {
  return std::max(kBlockBytes, most_rows * block_cols(most_rows, matrices) * matrices * int64_t{sizeof(float)});
}

extern const CpuLowering kLinearLowering = {&kLinear, lower};

}  // namespace redline
