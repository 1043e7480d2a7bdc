// conv2d (graph/ops/conv2d.h) as a product whose rows of x are patches of a feature map. The patches are gathered when
// the product stages its rows, so no patch is ever stored. The weight is packed in the order of patches
// (tensor/packed_weight.h).
#pragma once

#include "kernels/tiles/linear.h"

namespace redline::tiles {

/// Sizes of patches. Sizes that change from step to step are indices into StepTables::rows.
struct PatchShape {
  int32_t channels, block;  ///< elements of a patch are [channels / block][kernel][kernel][block]
  int32_t kernel, stride, pad;
  int32_t upsample;  ///< nearest-neighbour resize: the map gets the size of the output
  int32_t in_height, in_width, out_height, out_width;
};

/// The patch of one output pixel.
struct Patch {
  const float* item;
  int channels, block, kernel, upsample;
  int in_height, in_width, height, width;  ///< size of the input, and after upsampling
  int y, x;                                ///< position of the first tap

  TILE_FN Patch(const PatchShape& s, const float* from, const StepTables& step, int row)
      : channels(s.channels), block(s.block), kernel(s.kernel), upsample(s.upsample), in_height(step.rows[s.in_height]),
        in_width(step.rows[s.in_width]), height(in_height), width(in_width) {
    const int out_height = step.rows[s.out_height], out_width = step.rows[s.out_width];
    if (upsample) {
      height = out_height;
      width = out_width;
    }
    const int pixel = row % (out_height * out_width);
    item = from + int64_t{row / (out_height * out_width)} * in_height * in_width * channels;
    y = pixel / out_width * s.stride - s.pad;
    x = pixel % out_width * s.stride - s.pad;
  }
  /// Loads elements k of the patch; zeros outside the map.
  TILE_FN Lanes<float> load(const Lanes<int>& k, const Lanes<bool>& mask, Warp& w) const {
    const int taps = kernel * kernel, in_block = taps * block;
    const Lanes<int> within = k % in_block, tap = within / block, channel = k / in_block * block + within % block;
    Lanes<int> row = tap / kernel + y, col = tap % kernel + x;
    const Lanes<bool> inside =
        mask & (row >= Lanes<int>(0)) & (row < Lanes<int>(height)) & (col >= Lanes<int>(0)) & (col < Lanes<int>(width));
    if (upsample) {
      row = row * in_height / height;
      col = col * in_width / width;
    }
    return w.load(item, convert<int64_t>(row * in_width + col) * int64_t{channels} + convert<int64_t>(channel), inside);
  }
};

struct Conv2dArgs : LinearArgs {
  PatchShape patch;
};

namespace detail {

struct PatchRows {
  using Args = Conv2dArgs;
  static constexpr bool kLoaderWaits = false, kRoundsToI8 = false;
  static TILE_FN Product product(const Args& a, const TileRange& tile, Warp& w) {
    return DenseRows::product(a, tile, w);
  }
  static TILE_FN Patch x_row(const Args& a, const Product&, const StepTables& step, int row, Warp&) {
    return {a.patch, a.x, step, row};
  }
  static TILE_FN Lanes<int> y_row(const LinearArgs&, const Lanes<int>& row, const Lanes<bool>&, Warp&) { return row; }
  static TILE_FN int y_col(const LinearArgs&, const Product&) { return 0; }
  static TILE_FN int bias_col(const LinearArgs&, const Product&) { return 0; }
};

}  // namespace detail

using Conv2d = BasicLinear<detail::PatchRows>;
using Conv2dF32 = BasicLinearF32<detail::PatchRows>;

}  // namespace redline::tiles
