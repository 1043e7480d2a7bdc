// conv_patches of every instruction set against plain loops: a copy, or a rounding to bfloat16, so nothing may differ.
#include "kernels/cpu/conv2d.h"

#include "support/guarded_buffer.h"
#include "support/isa_test.h"

namespace redline {
namespace {

using testing::GuardedBuffer;
using ConvPatches = IsaTest;

struct Case {
  int64_t in_height, in_width, channels, out_height, out_width;
  int64_t kernel = 3, stride = 1, pad = 1;
  bool upsample = false;
};

/// The element of a patch by the definition.
float patch(const Case& c, const float* x, int64_t row, int64_t col) {
  const int64_t tap = col / c.channels, k = col % c.channels;
  int64_t y = row / c.out_width * c.stride + tap / c.kernel - c.pad;
  int64_t at = row % c.out_width * c.stride + tap % c.kernel - c.pad;
  if (y < 0 || at < 0 || y >= (c.upsample ? c.out_height : c.in_height) ||
      at >= (c.upsample ? c.out_width : c.in_width))
    return 0;
  if (c.upsample) {
    y = y * c.in_height / c.out_height;
    at = at * c.in_width / c.out_width;
  }
  return x[(y * c.in_width + at) * c.channels + k];
}

void expect_patches(const CpuKernels& kernels, const Case& c, int64_t begin, int64_t end, int64_t out_row) {
  SCOPED_TRACE(fmt::format("{}x{}x{} to {}x{}, kernel {} /{} pad {}{}, rows {} to {} at {}", c.in_height, c.in_width,
                           c.channels, c.out_height, c.out_width, c.kernel, c.stride, c.pad,
                           c.upsample ? " upsampled" : "", begin, end, out_row));
  GuardedBuffer<float> x(c.in_height * c.in_width * c.channels);
  const std::vector<float> values = test_values(static_cast<size_t>(x.size()), 3, 5.0f);
  for (int64_t i = 0; i < x.size(); ++i) x[i] = values[static_cast<size_t>(i)];
  const int64_t cols = c.kernel * c.kernel * c.channels, rows = out_row + end - begin;
  ConvPatchesArgs a = {x.data(), c.in_height, c.in_width, c.channels, c.out_height, c.out_width, c.kernel, c.stride,
                       c.pad,    c.upsample,  begin,      end,        XForm::kF32,  out_row,     nullptr};
  GuardedBuffer<float> plain(rows * cols);
  for (int64_t i = 0; i < plain.size(); ++i) plain[i] = 77;
  a.out = plain.data();
  kernels.conv_patches(a);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < cols; ++k)
      ASSERT_EQ(plain[r * cols + k], r < out_row ? 77.0f : patch(c, x.data(), begin + r - out_row, k))
          << "row " << r << ", column " << k;

  const int64_t steps = (cols + 31) / 32, panel = tiles_panel_bytes(cols) / 2;
  GuardedBuffer<uint16_t> tiles(x_form_bytes(XForm::kTiles, rows, cols) / 2);
  for (int64_t i = 0; i < tiles.size(); ++i) tiles[i] = 0x7777;
  a.out = tiles.data();
  a.form = XForm::kTiles;
  kernels.conv_patches(a);
  for (int64_t r = 0; r < (rows + 15) / 16 * 16; ++r)
    for (int64_t k = 0; k < steps * 32; ++k) {
      const uint16_t got = tiles[r / 16 * panel + k / 32 * 512 + r % 16 * 32 + k % 32];
      if (r < out_row || r >= rows) ASSERT_EQ(got, 0x7777) << "row " << r << " is not this call's";
      else
        ASSERT_EQ(got, k < cols ? f32_to_bf16(patch(c, x.data(), begin + r - out_row, k)) : 0)
            << "row " << r << ", column " << k;
    }
}

TEST_P(ConvPatches, AreWhatTheDefinitionSays) {
  for (int64_t channels : {1, 3, 4, 15, 16, 17, 31, 32, 33, 64, 67, 96})
    for (const Case& c : {Case{5, 7, channels, 5, 7}, Case{1, 1, channels, 1, 1}, Case{2, 9, channels, 2, 9},
                          Case{7, 5, channels, 4, 3, 3, 2, 1}, Case{6, 8, channels, 3, 4, 3, 2, 0},
                          Case{3, 4, channels, 6, 8, 3, 1, 1, true}, Case{3, 4, channels, 5, 7, 3, 1, 1, true},
                          Case{6, 6, channels, 6, 6, 1, 1, 0}, Case{6, 5, channels, 3, 2, 2, 2, 0},
                          Case{4, 4, channels, 4, 4, 5, 1, 2}, Case{1, 2, channels, 3, 4, 3, 1, 2}})
      expect_patches(kernels(), c, 0, c.out_height * c.out_width, 0);
}

TEST_P(ConvPatches, OfSomeRowsGoWhereTheyAreWanted) {
  for (int64_t channels : {3, 32, 320})
    for (const Case& c : {Case{5, 7, channels, 5, 7}, Case{3, 4, channels, 6, 7, 3, 1, 1, true},
                          Case{9, 11, channels, 5, 6, 3, 2, 1}}) {
      const int64_t pixels = c.out_height * c.out_width;
      for (int64_t begin : {int64_t{0}, int64_t{1}, int64_t{13}, pixels})
        for (int64_t out_row : {0, 1, 15, 16, 21})
          expect_patches(kernels(), c, begin, std::min(pixels, begin + 17), out_row);
    }
}

TEST_P(ConvPatches, OfAPictureWithoutPixelsAreZeros) {
  expect_patches(kernels(), {0, 0, 8, 2, 2, 3, 1, 2}, 0, 4, 0);
  expect_patches(kernels(), {0, 3, 8, 0, 3}, 0, 0, 0);
  expect_patches(kernels(), {3, 0, 8, 3, 0}, 0, 0, 0);
}

REDLINE_INSTANTIATE_PER_ISA(ConvPatches);

}  // namespace
}  // namespace redline
