// Patches of a picture as the rows of a product: what a convolution multiplies its weight by.
#pragma once

#include <cstdint>

#include "kernels/cpu/x_form.h"

namespace redline {

/// out[r, (dy * kernel + dx) * channels + c] = x[stride oy + dy - pad, stride ox + dx - pad, c], zero outside the picture,
/// for the output pixels r = oy * out_width + ox in [row_begin, row_end) of one item.
/// With `upsample` (stride 1) the picture is first brought to out_height x out_width: pixel (y, x) of that is pixel
/// (y * in_height / out_height, x * in_width / out_width), rounded down.
struct ConvPatchesArgs {
  const float* x;  ///< [in_height, in_width, channels] dense
  int64_t in_height, in_width, channels;
  int64_t out_height, out_width;
  int64_t kernel, stride, pad;
  bool upsample;
  int64_t row_begin, row_end;
  XForm form;       ///< kF32 or kTiles
  int64_t out_row;  ///< which row of `out` row_begin is
  void* out;        ///< rows of kernel * kernel * channels in the form; the last tile of kTiles is padded with zeros
};

}  // namespace redline
