#include "graph/ops/conv2d.h"

#include <algorithm>

#include "backends/cpu/cpu_target.h"
#include "backends/cpu/linear_adapters.h"
#include "backends/cpu/linear_lowering.h"
#include "backends/cpu/lowering.h"
#include "graph/items.h"
#include "graph/ops/linear.h"
#include "kernels/cpu/conv2d.h"

namespace redline {

bool convolves_by_tiles(const CpuKernels& kernels, bool exact_f32, DType weight, int64_t channels, int64_t kernel) {
  return kernels.has_tile_unit && !exact_f32 && weight == DType::kBF16 && channels % kConvBlock == 0 &&
         kernel <= kConvMaxKernel;
}

namespace {

struct Attrs {
  Conv2dOpAttrs op;
  LinearKernels kernels;
  bool by_tiles;  ///< direct convolution on the tile unit, without im2col patches
  void (*patches)(const ConvPatchesArgs&);
  void (*add)(const AddArgs&);
  int64_t channels, out_features, in_features;
  /// of patches or input rows; followed by the per-item biases, then the norm's scales and shifts
  int64_t block_bytes = 0;
  int workers;
  // Set if the op has an adapter site.
  void (*adapter_down[kNumActivationLayouts])(const LinearArgs&) = {};
  AdapterExpand adapter_up;
  int64_t adapter_at = 0;     ///< offset in the buffer of x down^T for some rows; its prepared copy follows
  int64_t adapter_bytes = 0;  ///< of the float32 copy
};

// The patches of a block of pixels stay in the L2 cache while the kernel iterates over the weight's columns.
constexpr int64_t kBlockBytes = 1 << 20;

constexpr int64_t kMaxBlockRows = 512;

// A worker with fewer rows than this shares them with others and takes only some columns; otherwise every worker would
// read the whole weight for too few rows.
constexpr int64_t kRowsWorthTheWeight = 256;

// Rows of x down^T that adapters compute at a time, or one image row.
constexpr int64_t kAdapterRows = 1024;

// More tasks than workers, so that idle workers can steal. A task with fewer rows than this is dominated by its
// prologue and weight loads.
constexpr int kMaxTasksPerWorker = 4;

constexpr int64_t kRowsOfATask = 1024;

// Outputs of at least this many bytes use non-temporal stores: by the time they are read the caches hold other data.
constexpr int64_t kStreamedBytes = 8 << 20;

int64_t block_rows(int64_t in_features, ActivationLayout form) {
  const int64_t row_bytes = in_features * (form == ActivationLayout::kBf16Tiled ? 2 : 4);
  return std::clamp(kBlockBytes / row_bytes / kXTileRows * kXTileRows, kXTileRows, kMaxBlockRows);
}

int64_t block_bytes(int64_t in_features, ActivationLayout form) {
  return activation_layout_bytes(form, block_rows(in_features, form), in_features);
}

/// The part of one task: whole image rows of all items, columns in panels of 16. It depends only on the sizes, so
/// convolutions of one output size are partitioned alike, whichever kernels run them.
struct Share {
  int64_t line_begin, line_end, col_begin, col_end;

  /// `task` is one of kMaxTasksPerWorker * workers. If the feature map is too small for all of them, some get no rows.
  Share(const Conv2dGeometry& s, int64_t cols, int workers, int task)
      : line_begin(0), line_end(0), col_begin(0), col_end(0) {
    const int64_t lines = s.batch * s.out_height;
    int per_worker = kMaxTasksPerWorker;
    while (per_worker > 1 && lines * s.out_width / (workers * per_worker) < kRowsOfATask) per_worker /= 2;
    if (task % (kMaxTasksPerWorker / per_worker) != 0) return;
    task /= kMaxTasksPerWorker / per_worker;
    const int tasks = workers * per_worker;
    int parts = tasks;
    while (parts > 1 && (tasks % parts != 0 || lines * s.out_width / parts < kRowsWorthTheWeight)) --parts;
    const int col_parts = tasks / parts, part = task / col_parts, col = task % col_parts;
    const int64_t strips = (cols + kStripRows - 1) / kStripRows;
    line_begin = lines * part / parts;
    line_end = lines * (part + 1) / parts;
    col_begin = std::min(cols, strips * col / col_parts * kStripRows);
    col_end = std::min(cols, strips * (col + 1) / col_parts * kStripRows);
  }
};

/// The bias added to every row of an item. Per-item biases of consecutive items are contiguous.
const float* bias_of_items(const CpuStage& stage, const Attrs& a, int64_t item, int64_t count,
                           const WorkerContext& worker) {
  const auto *bias = stage.operand<float>(3), *items = stage.operand<float>(4);
  if (!items) return bias;
  const float* own = items + item * a.out_features;
  if (!bias) return own;
  auto* both = reinterpret_cast<float*>(static_cast<uint8_t*>(worker.buffer) + a.block_bytes);
  for (int64_t i = 0; i < count; ++i)
    a.add({bias, own + i * a.out_features, both + i * a.out_features, a.out_features});
  return both;
}

ConvPatchesArgs feature_map_of(const CpuStage& stage, const Attrs& a, const Conv2dGeometry& s, int64_t item) {
  ConvPatchesArgs args = {};
  args.x = stage.operand<float>(0) + item * s.in_pixels() * a.channels;
  args.in_height = s.in_height;
  args.in_width = s.in_width;
  args.channels = a.channels;
  args.out_height = s.out_height;
  args.out_width = s.out_width;
  args.kernel = a.op.kernel;
  args.stride = a.op.stride;
  args.pad = a.op.pad_before;
  args.upsample = a.op.upsample;
  return args;
}

/// Buffer space for the adapters.
float* adapter_rows(const Attrs& a, const WorkerContext& worker) {
  return reinterpret_cast<float*>(static_cast<uint8_t*>(worker.buffer) + a.adapter_at);
}

/// y += (t scale) up^T for `rows` rows starting at `y`, columns of the share.
void add_up(const Attrs& a, const AdapterFactors& factors, float scale, const Share& share, int64_t rows,
            int64_t segment_rows, float* y, WorkerContext& worker) {
  float* t = adapter_rows(a, worker);
  for (int64_t i = 0; i < rows * factors.rank; ++i) t[i] *= scale;
  LinearArgs args = {};
  args.rows = rows;
  args.out_features = args.y_stride = a.out_features;
  args.n_begin = share.col_begin;
  args.n_end = share.col_end;
  args.y = y;
  args.scratch = worker.scratch;
  a.adapter_up.add(args, factors, t, factors.rank, segment_rows, reinterpret_cast<uint8_t*>(t) + a.adapter_bytes);
}

/// Adds the adapters to the output that the feature map's tiles, which begin with item `first`, have just written.
void add_adapters_by_tiles(const Attrs& a, const StepContext& step, const Conv2dGeometry& s, const Share& share,
                           ConvPatchesArgs picture, int64_t first, WorkerContext& worker) {
  const ConvTiles& made = *picture.tiles;
  ConvTiles down = made;
  picture.tiles = &down;
  down.items = 1;
  down.bias = down.residual = nullptr;
  down.streams = false;
  down.n_begin = 0;
  const int64_t at_once = std::max<int64_t>(1, kAdapterRows / std::max<int64_t>(1, s.out_width));
  for (int64_t item = 0; item < made.items; ++item) {
    // Segments are whole items.
    const int64_t row = (first + item) * s.pixels();
    for_adapted_rows(step.adapters, *a.op.adapters, step.sizes, row, row + s.pixels(), [&](const AdaptedRows& adapted) {
      for (int64_t line = made.line_begin; line < made.line_end; line += at_once) {
        down.line_begin = line;
        down.line_end = std::min(made.line_end, line + at_once);
        float* y = made.y + (item * s.pixels() + line * s.out_width) * a.out_features;
        for (const WeightedAdapter& each : adapted.adapters) {
          const AdapterFactors* factors = factors_at(each, *a.op.adapters);
          if (factors == nullptr) continue;
          down.weight = factors->down;
          down.out_channels = down.n_end = factors->rank;
          // Offset as if the buffer held all earlier image rows as well.
          down.y = adapter_rows(a, worker) - line * s.out_width * factors->rank;
          a.patches(picture);
          add_up(a, *factors, factors->scale * each.weight, share, (down.line_end - line) * s.out_width,
                 adapted.segment_rows, y, worker);
        }
      }
    });
    picture.x += s.in_pixels() * a.channels;
    if (made.scale) {
      down.scale += a.channels;
      down.shift += a.channels;
    }
  }
}

void run_tiles(const CpuStage& stage, const Attrs& a, const StepContext& step, const Conv2dGeometry& s,
               const Share& share, WorkerContext& worker) {
  const int64_t cols = a.out_features;
  ConvTiles tiles = {};
  tiles.weight = stage.operands[1];
  tiles.out_channels = cols;
  tiles.n_begin = share.col_begin;
  tiles.n_end = share.col_end;
  const auto* residual = stage.operand<float>(5);
  auto* y = stage.operand<float>(2);
  // If the residual is in place, its rows are in the caches when they are written.
  tiles.streams = s.batch * s.pixels() * cols * int64_t{sizeof(float)} >= kStreamedBytes && residual != y;
  tiles.buffer = worker.buffer;
  tiles.scratch = worker.scratch;
  float* scale =
      reinterpret_cast<float*>(static_cast<uint8_t*>(worker.buffer) + a.block_bytes) + kConvMaxItems * a.out_features;
  float* shift = scale + kConvMaxItems * a.channels;
  if (a.op.has_norm) {
    tiles.scale = scale;
    tiles.shift = shift;
    tiles.silu = a.op.norm.silu;
  }
  tiles.bias_stride = stage.operands[4] ? cols : 0;
  const int64_t at_once = conv_items_at_once(s.out_width, s.out_height, a.channels, a.op.kernel, a.op.stride);
  for (int64_t line = share.line_begin; line < share.line_end;) {
    const int64_t item = line / s.out_height, first = item * s.pixels() * cols;
    tiles.line_begin = line - item * s.out_height;
    tiles.line_end = std::min(s.out_height, share.line_end - item * s.out_height);
    tiles.items = tiles.line_begin > 0 ? 1 : std::clamp<int64_t>((share.line_end - line) / s.out_height, 1, at_once);
    line += tiles.items > 1 ? tiles.items * s.out_height : tiles.line_end - tiles.line_begin;
    tiles.bias = bias_of_items(stage, a, item, tiles.items, worker);
    for (int64_t i = 0; tiles.scale && s.in_pixels() > 0 && i < tiles.items; ++i)
      group_norm_scale(stage.operand<float>(6), item + i, s.in_pixels(), a.channels, a.op.norm, stage.operand<float>(7),
                       stage.operand<float>(8), scale + i * a.channels, shift + i * a.channels);
    tiles.residual = residual ? residual + first : nullptr;
    tiles.y = y + first;
    ConvPatchesArgs args = feature_map_of(stage, a, s, item);
    args.tiles = &tiles;
    a.patches(args);
    if (a.op.adapters && !step.adapters.empty()) add_adapters_by_tiles(a, step, s, share, args, item, worker);
  }
}

// operands: x, weight, y, then, each null if absent: bias, per-item bias, residual; the norm's statistics, weight and
// bias
void run(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const Conv2dGeometry s(a.op, step.sizes);
  const int64_t rows = s.batch * s.pixels(), cols = a.out_features, k = a.in_features;
  const Share share(s, cols, a.workers, tile.index);
  if (share.col_begin >= share.col_end || rows == 0) return;
  if (a.by_tiles) return run_tiles(stage, a, step, s, share, worker);
  const int chosen = a.kernels.layouts.index_for_rows(rows);
  const ActivationLayout form = a.kernels.layouts.at[chosen].layout;
  const int64_t most = block_rows(k, form), row_end = share.line_end * s.out_width;
  auto* y = stage.operand<float>(2);
  const auto* residual = stage.operand<float>(5);
  for (int64_t begin = share.line_begin * s.out_width, end; begin < row_end; begin = end) {
    end = std::min(begin + most, row_end);
    // A per-item bias applies only to the rows of that item.
    if (stage.operands[4]) end = std::min(end, (begin / s.pixels() + 1) * s.pixels());
    for_items(begin, end, s.pixels(), [&](int64_t item, int64_t row, int64_t last) {
      ConvPatchesArgs args = feature_map_of(stage, a, s, item);
      args.row_begin = row - item * s.pixels();
      args.row_end = last - item * s.pixels();
      args.form = form;
      args.out_row = row - begin;
      args.out = worker.buffer;
      a.patches(args);
    });
    a.kernels.run[chosen]({worker.buffer, k, end - begin, stage.operands[1], cols, k, share.col_begin, share.col_end,
                           bias_of_items(stage, a, begin / s.pixels(), 1, worker),
                           residual ? residual + begin * cols : nullptr, y + begin * cols, cols, worker.scratch});
    if (!a.op.adapters) continue;
    for_adapted_rows(step.adapters, *a.op.adapters, step.sizes, begin, end, [&](const AdaptedRows& adapted) {
      // Rows before the segment in its panel are computed too, and dropped.
      const int64_t skip = (adapted.begin - begin) % activation_layout_panel(form);
      const int64_t first = adapted.begin - begin - skip, count = adapted.end - adapted.begin;
      for (const WeightedAdapter& each : adapted.adapters) {
        const AdapterFactors* factors = factors_at(each, *a.op.adapters);
        if (factors == nullptr) continue;
        const int64_t rank = factors->rank;
        float* t = adapter_rows(a, worker);
        a.adapter_down[static_cast<int>(form)](
            {static_cast<uint8_t*>(worker.buffer) + activation_layout_bytes(form, first, k), k, skip + count,
             factors->down, rank, k, 0, rank, nullptr, nullptr, t, rank, worker.scratch});
        if (skip > 0) std::copy(t + skip * rank, t + (skip + count) * rank, t);
        add_up(a, *factors, factors->scale * each.weight, share, count, adapted.segment_rows, y + adapted.begin * cols,
               worker);
      }
    });
  }
}

/// Kernels, types and buffer space for adapters; the space follows the first `buffer_bytes` of the buffer.
Status make_room_for_adapters(const LowerContext& c, Attrs& a, int64_t& buffer_bytes) {
  AdapterSite& site = *a.op.adapters;
  const CpuKernels& table = c.kernels();
  a.adapter_up = AdapterExpand::choose(table, c.options().exact_f32);
  site.up_type = site.down_type = a.adapter_up.type;
  const auto down = static_cast<size_t>(site.down_type);
  a.adapter_down[static_cast<int>(ActivationLayout::kF32)] = table.linear[down];
  a.adapter_down[static_cast<int>(ActivationLayout::kBf16Tiled)] = table.linear_tiles[down];
  for (int i = 0; i < a.kernels.layouts.count && !a.by_tiles; ++i)
    if (!a.adapter_down[static_cast<int>(a.kernels.layouts.at[i].layout)])
      return unsupported("no kernel for adapters whose patches are {}",
                         activation_layout_name(a.kernels.layouts.at[i].layout));
  const int64_t most_rows =
      a.by_tiles ? std::max(kAdapterRows, a.op.out_width.eval(c.options().bounds)) : kMaxBlockRows;
  const auto aligned = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  a.adapter_at = aligned(buffer_bytes);
  a.adapter_bytes = aligned(most_rows * site.max_rank * int64_t{sizeof(float)});
  buffer_bytes = a.adapter_at + a.adapter_bytes + a.adapter_up.buffer_bytes(most_rows, site.max_rank);
  return {};
}

Status lower(LowerContext& c) {
  const auto& in = c.op().inputs;
  const auto& op = std::any_cast<const Conv2dOpAttrs&>(c.op().attrs);
  const Conv2dInputs at(op);
  auto attrs = std::make_shared<Attrs>();
  attrs->op = op;
  attrs->kernels = choose_linear(c.kernels(), c.in(1).dtype, c.options().exact_f32);
  attrs->patches = c.kernels().conv_patches;
  attrs->add = c.kernels().add;
  attrs->channels = c.in(0).shape[1].constant();
  attrs->out_features = c.out().shape[1].constant();
  attrs->in_features = attrs->channels * op.kernel * op.kernel;
  attrs->workers = c.workers();
  if (!attrs->kernels.run[0])
    return unsupported("{} has type {}, which the linear kernels do not read", c.in(1).name,
                       dtype_info(c.in(1).dtype).name);
  attrs->by_tiles = convolves_by_tiles(c.kernels(), c.options().exact_f32, c.in(1).dtype, attrs->channels, op.kernel);
  if (op.has_norm && !attrs->by_tiles) return internal("{}: patches are not normalized", c.in(1).name);
  if (attrs->by_tiles) attrs->block_bytes = conv_buffer_bytes(attrs->channels, op.kernel, op.stride);
  for (int i = 0; i < attrs->kernels.layouts.count && !attrs->by_tiles; ++i) {
    const ActivationLayout form = attrs->kernels.layouts.at[i].layout;
    if (form == ActivationLayout::kI8Grouped) return internal("{}: patches are not made in eight bits", c.in(1).name);
    attrs->block_bytes = std::max(attrs->block_bytes, block_bytes(attrs->in_features, form));
  }
  attrs->block_bytes = (attrs->block_bytes + 63) / 64 * 64;
  REDLINE_ASSIGN(void* weight, c.packed_weight(1));
  void *bias = nullptr, *norm_weight = nullptr, *norm_bias = nullptr;
  if (at.bias) {
    REDLINE_ASSIGN(bias, c.dense_weight(at.bias));
  }
  if (at.norm) {
    REDLINE_ASSIGN(norm_weight, c.dense_weight(at.norm + 1));
    REDLINE_ASSIGN(norm_bias, c.dense_weight(at.norm + 2));
  }
  // Tasks partition rows and columns by the sizes of each step. To the planner the stage therefore has a fixed number
  // of rows: twice its tasks, a number that no other kind of stage has. Convolutions of one shape, such as an output
  // and its residual, are partitioned alike and may wait tile by tile; all other stages wait for the whole.
  LoweredStage stage = c.output_stage(run);
  stage.row_tiles = c.workers() * kMaxTasksPerWorker;
  stage.rows = 2 * stage.row_tiles;
  stage.buffer_bytes =
      attrs->block_bytes + kConvMaxItems * (attrs->out_features + 2 * attrs->channels) * int64_t{sizeof(float)};
  if (op.adapters) REDLINE_TRY(make_room_for_adapters(c, *attrs, stage.buffer_bytes));
  stage.reads = {{in[0], Reads::kAll}};
  auto optional = [&](size_t place) {
    if (place == 0) return c.at(static_cast<void*>(nullptr));
    stage.reads.push_back({in[place], place == at.residual ? Reads::kTile : Reads::kAll});
    return c.at(in[place]);
  };
  const LowerContext::Operand item_bias = optional(at.item_bias), residual = optional(at.residual),
                              sums = optional(at.norm);
  if (at.residual) stage.in_place_of = in[at.residual];
  stage.attrs = std::move(attrs);
  c.add_stage(std::move(stage), {c.at(in[0]), c.at(weight), c.at(c.op().outputs[0]), c.at(bias), item_bias, residual,
                                 sums, c.at(norm_weight), c.at(norm_bias)});
  return {};
}

}  // namespace

extern const CpuLowering kConv2dLowering = {&kConv2d, lower};

}  // namespace redline
