#include "graph/ops/gated_linear.h"

#include <algorithm>

#include "backends/cpu/linear_adapters.h"
#include "backends/cpu/linear_lowering.h"
#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"
#include "graph/ops/activation.h"
#include "graph/ops/linear.h"
#include "kernels/cpu/linear/linear_end.h"

namespace redline {
namespace {

struct GatedLinearParams {
  int64_t matrices;
  LinearKernels kernels[2];  // gate, up
  const void* weight[2];
  const float* bias[2];
  Activation activation;
  void (*activate)(const ActivationArgs&);
  bool tiles_end;  // linear_tiles computes the whole op, epilogue included
  int64_t features, in_features;
  int64_t col_bytes[2];  // of the packed weights
  PreparedOutput out;
  Operand<const uint8_t> x;
  Operand<float> y;
  LinearAdapters adapters;
};

// Rows buffered per worker when the output layout is kI8Tiled, which is written kI8Chunk columns at a time. Their bytes
// stay below the 1 MiB from which linear_tiles_end.h uses non-temporal stores, because they are read again at once.
constexpr int64_t kI8Rows = 224;
// Rows that linear_i8 multiplies at a time without a tile unit.
constexpr int64_t kI8DotRows = 256;
// Rows that the kernels of other layouts multiply at a time. A block of more rows would have so few columns that all of
// x is read again and again: with 4,096 rows of a FLUX block 32 columns, and bf16 dots at 0.60 of their peak. linear_q8
// multiplies as many with codes that it has unpacked once; with kI8Grouped, written kQ8Group columns at a time, the
// buffer of two matrices does not fit in L2, which costs less than unpacking twice. linear_requantized rounds its
// weights for 256 rows at a time.
constexpr int64_t kBlockRows = 512;
static_assert(kI8Rows % kXTileRows == 0 && kI8DotRows % kXTileRows == 0 && kBlockRows % kXTileRows == 0);
/// Returns the rows of a block such that all blocks have nearly the same number of rows and begin with a panel of x.
int64_t balanced_rows(int64_t rows) {
  const int64_t parts = std::max<int64_t>(1, (rows + kBlockRows - 1) / kBlockRows);
  const int64_t each = (rows + parts - 1) / parts;
  return (each + kXTileRows - 1) / kXTileRows * kXTileRows;
}
/// Returns the number of columns that are multiplied at once: a multiple of the columns that share a scale in the
/// output.
int64_t whole_cols(ActivationLayout out, int64_t rows, int64_t matrices) {
  if (out == ActivationLayout::kI8Tiled) return kI8Chunk;
  const int64_t grain = activation_layout_grain(out);
  return std::max(grain, block_cols(std::min(rows, kBlockRows), matrices) / grain * grain);
}

void run_gated_linear(const GatedLinearParams& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const int64_t all_rows = p.out.rows.eval(step.sizes), first = tile.row_begin, rows = tile.row_end - first;
  const ActivationLayout in = p.kernels[0].layouts.for_rows(all_rows), out = p.out.layouts.for_rows(all_rows);
  LinearArgs product = {.x = p.x + activation_layout_bytes(in, first, p.in_features),
                        .x_stride = p.in_features,
                        .rows = rows,
                        .weight = p.weight[0],
                        .out_features = p.features,
                        .in_features = p.in_features,
                        .n_begin = tile.col_begin,
                        .n_end = tile.col_end,
                        .bias = p.bias[0],
                        .residual = nullptr,
                        .y = p.y + first * p.features,
                        .y_stride = p.features,
                        .scratch = worker.scratch};
  // Adapters are added between product and activation, which the fully fused kernel does not support.
  const bool adapted = p.adapters.active(step);
  const bool does_all =
      p.tiles_end && !adapted && (in == ActivationLayout::kBf16Tiled || in == ActivationLayout::kI8Tiled);
  LinearEnd all = {
      .activation = &p.activation, .up_weight = p.matrices == 2 ? p.weight[1] : nullptr, .up_bias = p.bias[1]};
  if (does_all && (out == ActivationLayout::kF32 || out == ActivationLayout::kBf16Tiled)) {
    if (out == ActivationLayout::kBf16Tiled)
      all.tiles =
          reinterpret_cast<uint8_t*>(static_cast<float*>(p.y)) + activation_layout_bytes(out, first, p.features);
    product.end = &all;
    return p.kernels[0].for_rows(all_rows)(product);
  }
  const int64_t block = whole_cols(out, rows, p.matrices);
  const int64_t lines = out == ActivationLayout::kI8Tiled     ? (p.tiles_end ? kI8Rows : kI8DotRows)
                        : out == ActivationLayout::kI8Grouped ? balanced_rows(rows)
                                                              : kBlockRows;
  for (int64_t begin = tile.col_begin; begin < tile.col_end; begin += block)
    for (int64_t row = first; row < tile.row_end; row += lines) {
      const int64_t end = std::min(begin + block, tile.col_end), width = end - begin,
                    count = std::min(lines, tile.row_end - row);
      float* parts[2] = {static_cast<float*>(worker.buffer), static_cast<float*>(worker.buffer) + count * width};
      product.x = p.x + activation_layout_bytes(in, row, p.in_features);
      product.rows = count;
      product.n_begin = begin, product.n_end = end;
      product.y_stride = width;
      product.end = does_all ? &all : nullptr;
      for (int64_t i = 0; i < (does_all ? 1 : p.matrices); ++i) {
        product.weight = p.weight[i];
        product.bias = p.bias[i];
        product.y = parts[i] - begin;  // kernels index columns from the first of the matrix
        auto* const kernel = p.kernels[i].for_rows(all_rows);
        if (adapted) p.adapters.multiply(kernel, product, step, static_cast<size_t>(i), row, worker);
        else kernel(product);
      }
      if (!does_all)
        p.activate({.x = parts[0],
                    .x_stride = width,
                    .up = p.matrices == 2 ? parts[1] : nullptr,
                    .up_stride = width,
                    .y = parts[0],
                    .y_stride = width,
                    .rows = count,
                    .cols = width,
                    .kind = p.activation});
      p.out.write(parts[0], width, all_rows, {row, row + count, begin, end, tile.index}, p.y);
    }
}

FirstBytes gated_linear_first_weights(const GatedLinearParams& p, const Tile& tile) {
  FirstBytes first;
  for (size_t i = 0; i < static_cast<size_t>(p.matrices); ++i) {
    first.data[i] = static_cast<const uint8_t*>(p.weight[i]) + p.col_bytes[i] * tile.col_begin;
    first.bytes[i] = p.col_bytes[i] * (tile.col_end - tile.col_begin);
  }
  return first;
}

/// Maximum rows of a step whose tasks may begin at any row: up to it, no layout of x may interleave rows. Steps of more
/// rows are cut at panels of x.
constexpr int64_t kMinPanelRows = 4 * kXTileRows;

/// Returns the tile of a task for a grid with the same number of whole column groups for every worker, in all tiles but
/// its last. The last tiles share the remaining groups by rows: with two workers, each has half the rows of one group.
Tile whole_groups_and_rows(const TaskGrid& grid, int32_t index, const SymbolValues& sizes) {
  const int64_t tiles = grid.tiles_per_worker, workers = grid.row_parts / tiles, groups = grid.cols / kQ8Group;
  const int64_t rows = grid.rows.eval(sizes), worker = index / tiles, tile = index % tiles;
  const int64_t whole = groups / workers, first_left = whole * workers;
  if (tile + 1 < tiles) {
    const auto begin = [&](int64_t i) { return (whole * worker + whole * i / (tiles - 1)) * kQ8Group; };
    return {0, rows, begin(tile), begin(tile + 1), index};
  }
  const int64_t parts = workers / (groups - first_left), group = first_left + worker / parts, part = worker % parts;
  if (group >= groups) return {0, 0, 0, 0, index};
  const int64_t panel = rows > kMinPanelRows ? kXTileRows : 1;
  const auto row = [&](int64_t i) { return i == parts ? rows : rows * i / parts / panel * panel; };
  return {row(part), row(part + 1), group * kQ8Group, (group + 1) * kQ8Group, index};
}

/// Returns true if whole_groups_and_rows() balances the work better than tiles of whole groups. Tasks that write
/// kI8Grouped cut columns between groups of 256, so that with 19 groups one of two workers has 11 % more than the
/// other.
bool balances_groups(const LowerContext& c, const GatedLinearParams& p) {
  const auto is_grouped = [](const ActivationLayouts& layouts) {
    return layouts.grain() == kQ8Group && layouts.for_rows(kMinPanelRows) == ActivationLayout::kI8Grouped;
  };
  if (!is_grouped(p.out.layouts) || !is_grouped(p.kernels[0].layouts) || p.features % kQ8Group != 0) return false;
  const int64_t groups = p.features / kQ8Group, left = groups % c.workers();
  return groups > c.workers() && left > 0 && left <= c.workers() / 2;
}

template <int kMatrices>
Status lower_gated_linear(LowerContext& c) {
  const auto& in = c.op().inputs;
  const auto& op = std::any_cast<const GatedLinearAttrs&>(c.op().attrs);
  auto params = std::make_shared<GatedLinearParams>();
  int64_t bytes = 0;
  for (size_t i = 0; i < kMatrices; ++i) {
    REDLINE_ASSIGN(params->kernels[i], linear_kernels(c, 1 + i));
    params->col_bytes[i] = packed_col_bytes(c.in(1 + i));
    REDLINE_ASSIGN(params->weight[i], c.packed_weight(1 + i));
    bytes += row_bytes(c.in(1 + i).dtype, c.in(1 + i).shape[1].constant());
    if (op.has_bias) {
      REDLINE_ASSIGN(params->bias[i], c.dense_weight(1 + kMatrices + i));
    }
  }
  params->matrices = kMatrices;
  params->activation = op.activation;
  params->activate = c.kernels().activation;
  params->tiles_end = c.kernels().has_tile_unit && c.in(1).dtype == c.in(kMatrices).dtype;
  params->features = c.in(1).shape[0].constant();
  params->in_features = c.in(1).shape[1].constant();
  REDLINE_ASSIGN(params->out, PreparedOutput::make(c));
  LoweredStage stage = c.output_stage<run_gated_linear, gated_linear_first_weights>(params);
  const int tiles = linear_tiles(c, params->features * kMatrices, bytes * params->features);
  stage.row_cuts = RowCuts::kAtRows;
  if (balances_groups(c, *params)) {
    stage.grid.kind = TaskGrid::Kind::kFunction;
    stage.grid.tiles_per_worker = std::max(1, tiles / c.workers()) + 1;
    stage.grid.row_parts = c.workers() * stage.grid.tiles_per_worker;
    stage.grid.partition = whole_groups_and_rows;
    stage.row_cuts = RowCuts::kNone;
  } else {
    stage.grid.col_begin =
        LowerContext::cut_columns(params->features, std::max(kFormGrain, c.out().layouts.grain()), tiles);
  }
  stage.buffer_bytes = block_bytes(std::min(stage.grid.rows.eval(c.options().bounds), kBlockRows), kMatrices);
  if (c.out().layouts.grain() == kI8Chunk)
    stage.buffer_bytes = std::max(stage.buffer_bytes, kI8DotRows * kI8Chunk * kMatrices * int64_t{sizeof(float)});
  if (c.out().layouts.grain() == kQ8Group)
    stage.buffer_bytes = std::max(stage.buffer_bytes, kBlockRows * kQ8Group * kMatrices * int64_t{sizeof(float)});
  stage.read(params->x, in[0], Reads::kRows);
  stage.write(params->y, c.op().outputs[0]);
  std::vector<LinearAdapters::Matrix> matrices;
  for (size_t i = 0; i < kMatrices; ++i) matrices.push_back({op.adapters[i].site, op.adapters[i].first_feature});
  REDLINE_TRY(params->adapters.lower(c, matrices, params->kernels[0].layouts, stage));
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kGatedLinearOps[] = {
    {&kGatedLinear, lower_gated_linear<2>},
    {&kActivatedLinear, lower_gated_linear<1>},
};

}  // namespace

extern const CpuLowerings kGatedLinearLowerings = kGatedLinearOps;

}  // namespace redline
