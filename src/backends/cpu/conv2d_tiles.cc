// A SquareConv2d on the tile unit, by dot products or in float32, without patches
// (kernels/cpu/convolution/conv2d_tiles.h).
#include <algorithm>

#include "backends/cpu/conv2d_lowering.h"

namespace redline {
namespace {

struct Conv2dTilesParams : Conv2dParams {
  void (*convolve)(const ConvPatchesArgs&) = nullptr;
  int64_t element_bytes = 2;  ///< bytes of an element of the buffered input
  DType weight_type = DType::kBF16;
  const float *norm_weight = nullptr, *norm_bias = nullptr;
  Operand<const float> sums;  ///< statistics of the norm
};

// Number of rows of x down^T that adapters compute at a time; at least one image row.
constexpr int64_t kAdapterRows = 1024;

// Outputs of at least this many bytes use non-temporal stores: by the time they are read the caches hold other data.
constexpr int64_t kStreamedBytes = 8 << 20;

/// Adds the adapters to the output that `input`, which begins with item `first`, and its tiles have just written.
void add_adapters(const Conv2dTilesParams& p, const StepContext& step, const Conv2dGeometry& s, const Tile& tile,
                  ConvPatchesArgs input, int64_t first, WorkerContext& worker) {
  const ConvTiles& made = *input.tiles;
  ConvTiles down = made;
  input.tiles = &down;
  down.items = 1;
  down.bias = down.residual = nullptr;
  down.streams = false;
  down.n_begin = 0;
  const int64_t at_once = std::max<int64_t>(1, kAdapterRows / std::max<int64_t>(1, s.out_width));
  for (int64_t item = 0; item < made.items; ++item) {
    // Segments are whole items.
    const int64_t row = (first + item) * s.pixels();
    for_adapted_rows(step.adapters, *p.op.adapters, step.sizes, row, row + s.pixels(), [&](const AdaptedRows& adapted) {
      for (int64_t image_row = made.image_row_begin; image_row < made.image_row_end; image_row += at_once) {
        down.image_row_begin = image_row;
        down.image_row_end = std::min(made.image_row_end, image_row + at_once);
        float* y = made.y + (item * s.pixels() + image_row * s.out_width) * p.out_features;
        for (const WeightedAdapter& each : adapted.adapters) {
          const AdapterFactors* factors = factors_at(each, *p.op.adapters);
          if (factors == nullptr) continue;
          down.weight = factors->down;
          down.weight_type = p.op.adapters->down_type;
          down.out_channels = down.n_end = factors->rank;
          // Offset as if the buffer held all earlier image rows as well.
          down.y = p.adapters.rows(worker) - image_row * s.out_width * factors->rank;
          p.convolve(input);
          p.adapters.add_up(*factors, factors->scale * each.weight, tile,
                            (down.image_row_end - image_row) * s.out_width, adapted.segment_rows, p.out_features, y,
                            worker);
        }
      }
    });
    input.x += s.in_pixels() * p.channels;
    if (made.scale) {
      down.scale += p.channels;
      down.shift += p.channels;
    }
  }
}

void run_conv2d_tiles(const Conv2dTilesParams& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const Conv2dGeometry s(p.square, step.sizes);
  const int64_t cols = p.out_features;
  ConvTiles tiles = {};
  tiles.weight = p.weight;
  tiles.weight_type = p.weight_type;
  tiles.out_channels = cols;
  tiles.n_begin = tile.col_begin;
  tiles.n_end = tile.col_end;
  // If the residual is in place, its rows are in the caches when they are written.
  tiles.streams = s.batch * s.pixels() * cols * int64_t{sizeof(float)} >= kStreamedBytes && p.residual != p.y;
  tiles.buffer = worker.buffer;
  tiles.scratch = worker.scratch;
  float* scale = p.item_buffer(worker) + kConvMaxItems * cols;
  float* shift = scale + kConvMaxItems * p.channels;
  if (p.op.has_norm) {
    tiles.scale = scale;
    tiles.shift = shift;
    tiles.silu = p.op.norm.silu;
  }
  tiles.bias_stride = p.item_bias ? cols : 0;
  const int64_t at_once =
      conv_items_at_once(s.out_width, s.out_height, p.channels, p.square.kernel, p.square.stride, p.element_bytes);
  const int64_t image_row_end = tile.row_end / s.out_width;
  for (int64_t image_row = tile.row_begin / s.out_width; image_row < image_row_end;) {
    const int64_t item = image_row / s.out_height, first = item * s.pixels() * cols;
    tiles.image_row_begin = image_row - item * s.out_height;
    tiles.image_row_end = std::min(s.out_height, image_row_end - item * s.out_height);
    tiles.items =
        tiles.image_row_begin > 0 ? 1 : std::clamp<int64_t>((image_row_end - image_row) / s.out_height, 1, at_once);
    image_row += tiles.items > 1 ? tiles.items * s.out_height : tiles.image_row_end - tiles.image_row_begin;
    tiles.bias = p.bias_of_items(item, tiles.items, worker);
    for (int64_t i = 0; tiles.scale && s.in_pixels() > 0 && i < tiles.items; ++i)
      group_norm_scale(p.sums, item + i, s.in_pixels(), p.channels, p.op.norm, p.norm_weight, p.norm_bias,
                       scale + i * p.channels, shift + i * p.channels);
    tiles.residual = p.residual ? p.residual + first : nullptr;
    tiles.y = p.y + first;
    ConvPatchesArgs input = p.input_of(s, item);
    input.tiles = &tiles;
    p.convolve(input);
    if (p.op.adapters && !step.adapters.empty()) add_adapters(p, step, s, tile, input, item, worker);
  }
}

}  // namespace

Status lower_conv2d_tiles(LowerContext& c, ConvMethod method) {
  auto params = std::make_shared<Conv2dTilesParams>();
  REDLINE_TRY(params->init(c));
  const ConvolutionOpAttrs& op = params->op;
  const SquareConv2d& square = params->square;
  const bool is_f32 = method == ConvMethod::kF32;
  params->convolve = is_f32 ? c.kernels().conv_f32 : c.kernels().conv_patches;
  params->element_bytes = is_f32 ? 4 : 2;
  params->weight_type = c.in(1).dtype;
  params->block_bytes =
      (conv_buffer_bytes(params->channels, square.kernel, square.stride, params->element_bytes) + 63) / 64 * 64;
  auto stage = LoweredStage::make<run_conv2d_tiles>(convolution_grid(c, op), params);
  params->add_operands(c, stage);
  if (const size_t norm = ConvolutionInputIndex(op).norm) {
    stage.read(params->sums, c.op().inputs[norm], Reads::kAll);
    REDLINE_ASSIGN(params->norm_weight, c.dense_weight(norm + 1));
    REDLINE_ASSIGN(params->norm_bias, c.dense_weight(norm + 2));
  }
  if (op.adapters)
    params->adapters.reserve(c, *op.adapters, std::max(kAdapterRows, square.out_width.eval(c.options().bounds)),
                             stage.buffer_bytes);
  c.add_stage(std::move(stage));
  return {};
}

}  // namespace redline
