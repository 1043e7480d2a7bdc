// conv_patches of every instruction set against plain loops: a copy, or a rounding to bfloat16, so nothing may differ;
// and whole convolutions by tile products (plain C++ below amx), by dot products or in float32 against sums in float64.
#include "kernels/cpu/convolution/conv2d.h"

#include "tensor/packed_weight.h"

#include "support/guarded_buffer.h"
#include "support/isa_test.h"

namespace redline {
namespace {

using testing::GuardedBuffer;
using ConvPatches = IsaTest;

struct Conv2dCase {
  int64_t in_height, in_width, channels, out_height, out_width;
  int64_t kernel = 3, stride = 1, pad = 1;
  bool upsample = false;
};

/// Which pixel of the image a tap of an output pixel is, -1 outside.
int64_t pixel_of(const Conv2dCase& c, int64_t row, int64_t tap) {
  int64_t y = row / c.out_width * c.stride + tap / c.kernel - c.pad;
  int64_t x = row % c.out_width * c.stride + tap % c.kernel - c.pad;
  if (y < 0 || x < 0 || y >= (c.upsample ? c.out_height : c.in_height) ||
      x >= (c.upsample ? c.out_width : c.in_width) || c.in_height == 0 || c.in_width == 0)
    return -1;
  if (c.upsample) {
    y = y * c.in_height / c.out_height;
    x = x * c.in_width / c.out_width;
  }
  return y * c.in_width + x;
}

/// The element of a patch by the definition.
float patch(const Conv2dCase& c, const float* x, int64_t row, int64_t col) {
  const int64_t taps = c.kernel * c.kernel, block = c.channels % 32 == 0 ? 32 : c.channels;
  const int64_t tap = col / block % taps, k = col / block / taps * block + col % block;
  const int64_t pixel = pixel_of(c, row, tap);
  return pixel < 0 ? 0.0f : x[pixel * c.channels + k];
}

void expect_patches(const CpuKernels& kernels, const Conv2dCase& c, int64_t begin, int64_t end, int64_t out_row) {
  SCOPED_TRACE(fmt::format("{}x{}x{} to {}x{}, kernel {} /{} pad {}{}, rows {} to {} at {}", c.in_height, c.in_width,
                           c.channels, c.out_height, c.out_width, c.kernel, c.stride, c.pad,
                           c.upsample ? " upsampled" : "", begin, end, out_row));
  GuardedBuffer<float> x(c.in_height * c.in_width * c.channels);
  const std::vector<float> values = test_values(static_cast<size_t>(x.size()), 3, 5.0f);
  for (int64_t i = 0; i < x.size(); ++i) x[i] = values[static_cast<size_t>(i)];
  const int64_t cols = c.kernel * c.kernel * c.channels, rows = out_row + end - begin;
  ConvPatchesArgs a = {
      x.data(), c.in_height, c.in_width, c.channels, c.out_height,           c.out_width, c.kernel, c.stride,
      c.pad,    c.upsample,  begin,      end,        ActivationLayout::kF32, out_row,     nullptr};
  GuardedBuffer<float> plain(rows * cols);
  for (int64_t i = 0; i < plain.size(); ++i) plain[i] = 77;
  a.out = plain.data();
  kernels.conv_patches(a);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < cols; ++k)
      ASSERT_EQ(plain[r * cols + k], r < out_row ? 77.0f : patch(c, x.data(), begin + r - out_row, k))
          << "row " << r << ", column " << k;

  const int64_t steps = (cols + 31) / 32, panel = tiles_panel_bytes(cols) / 2;
  GuardedBuffer<uint16_t> tiles(activation_layout_bytes(ActivationLayout::kBf16Tiled, rows, cols) / 2);
  for (int64_t i = 0; i < tiles.size(); ++i) tiles[i] = 0x7777;
  a.out = tiles.data();
  a.form = ActivationLayout::kBf16Tiled;
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
    for (const Conv2dCase& c :
         {Conv2dCase{5, 7, channels, 5, 7}, Conv2dCase{1, 1, channels, 1, 1}, Conv2dCase{2, 9, channels, 2, 9},
          Conv2dCase{7, 5, channels, 4, 3, 3, 2, 1}, Conv2dCase{6, 8, channels, 3, 4, 3, 2, 0},
          Conv2dCase{3, 4, channels, 6, 8, 3, 1, 1, true}, Conv2dCase{3, 4, channels, 5, 7, 3, 1, 1, true},
          Conv2dCase{6, 6, channels, 6, 6, 1, 1, 0}, Conv2dCase{6, 5, channels, 3, 2, 2, 2, 0},
          Conv2dCase{4, 4, channels, 4, 4, 5, 1, 2}, Conv2dCase{1, 2, channels, 3, 4, 3, 1, 2}})
      expect_patches(kernels(), c, 0, c.out_height * c.out_width, 0);
}

TEST_P(ConvPatches, OfSomeRowsGoWhereTheyAreWanted) {
  for (int64_t channels : {3, 32, 320})
    for (const Conv2dCase& c : {Conv2dCase{5, 7, channels, 5, 7}, Conv2dCase{3, 4, channels, 6, 7, 3, 1, 1, true},
                                Conv2dCase{9, 11, channels, 5, 6, 3, 2, 1}}) {
      const int64_t pixels = c.out_height * c.out_width;
      for (int64_t begin : {int64_t{0}, int64_t{1}, int64_t{13}, pixels})
        for (int64_t out_row : {0, 1, 15, 16, 21})
          expect_patches(kernels(), c, begin, std::min(pixels, begin + 17), out_row);
    }
}

TEST_P(ConvPatches, OfAnImageWithoutPixelsAreZeros) {
  expect_patches(kernels(), {0, 0, 8, 2, 2, 3, 1, 2}, 0, 4, 0);
  expect_patches(kernels(), {0, 3, 8, 0, 3}, 0, 0, 0);
  expect_patches(kernels(), {3, 0, 8, 3, 0}, 0, 0, 0);
}

REDLINE_INSTANTIATE_PER_ISA(ConvPatches);

using ConvByTiles = IsaTest;

template <class T>
T* aligned(std::vector<uint8_t>& bytes) {
  return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
}

struct TilesCase : Conv2dCase {
  int64_t out_channels;
  bool norm = false, silu = false, has_residual = true;
  bool in_f32 = false;  // conv_f32 instead of conv_patches
  DType type = DType::kBF16;

  int64_t element_bytes() const { return in_f32 ? 4 : 2; }
  int64_t buffer_bytes() const { return conv_buffer_bytes(channels, kernel, stride, element_bytes()); }
  void run(const CpuKernels& kernels, const ConvPatchesArgs& args) const {
    in_f32 ? kernels.conv_f32(args) : kernels.conv_patches(args);
  }
};

struct Convolution {
  TilesCase c;
  GuardedBuffer<float> x, residual;
  std::vector<float> weights, bias, scale, shift;
  std::vector<uint8_t> packed;

  explicit Convolution(const TilesCase& of)
      : c(of), x(c.in_height * c.in_width * c.channels), residual(c.out_height * c.out_width * c.out_channels),
        weights(test_values(static_cast<size_t>(c.out_channels * cols()), 4)),
        bias(test_values(static_cast<size_t>(c.out_channels), 5)),
        scale(test_values(static_cast<size_t>(c.channels), 6, 2.0f)),
        shift(test_values(static_cast<size_t>(c.channels), 7)) {
    const std::vector<float> values = test_values(static_cast<size_t>(x.size()), 3, 4.0f);
    for (int64_t i = 0; i < x.size(); ++i) x[i] = values[static_cast<size_t>(i)];
    const std::vector<float> rest = test_values(static_cast<size_t>(residual.size()), 8, 3.0f);
    for (int64_t i = 0; i < residual.size(); ++i) residual[i] = rest[static_cast<size_t>(i)];
    std::vector<uint16_t> rounded(weights.size());
    for (size_t i = 0; i < weights.size() && c.type != DType::kF32; ++i) {
      rounded[i] = c.type == DType::kF16 ? f32_to_f16(weights[i]) : f32_to_bf16(weights[i]);
      weights[i] = c.type == DType::kF16 ? f16_to_f32(rounded[i]) : bf16_to_f32(rounded[i]);
    }
    const void* data = c.type == DType::kF32 ? static_cast<const void*>(weights.data()) : rounded.data();
    const TensorView view = {c.type, {c.out_channels, c.channels, c.kernel, c.kernel}, data};
    packed.resize(static_cast<size_t>(packed_bytes(view)) + 64);
    pack_row_panels(view, 0, (c.out_channels + 15) / 16, aligned<void>(packed));
  }
  int64_t cols() const { return c.kernel * c.kernel * c.channels; }

  /// Lines `lines` and columns `row_panel` at a time, into y, which holds the residual where there is one and
  /// `in_place`.
  void run(const CpuKernels& kernels, int64_t lines, int64_t row_panel, bool in_place, bool streams, float* y) {
    // Memory to which no line is written holds the bits of a NaN.
    std::vector<uint8_t> lines_bytes(static_cast<size_t>(c.buffer_bytes()) + 64, 0xff);
    std::vector<uint8_t> scratch(static_cast<size_t>(kScratchBytes) + 64, 0xff);
    ConvTiles t = {};
    t.scale = c.norm ? scale.data() : nullptr;
    t.shift = c.norm ? shift.data() : nullptr;
    t.silu = c.silu;
    t.weight = aligned<void>(packed);
    t.weight_type = c.type;
    t.out_channels = c.out_channels;
    t.bias = bias.data();
    t.residual = !c.has_residual ? nullptr : in_place ? y : residual.data();
    t.y = y;
    t.streams = streams;
    t.buffer = aligned<void>(lines_bytes);
    t.scratch = aligned<void>(scratch);
    ConvPatchesArgs a = {
        x.data(), c.in_height, c.in_width, c.channels, c.out_height,           c.out_width, c.kernel, c.stride,
        c.pad,    c.upsample,  0,          0,          ActivationLayout::kF32, 0,           nullptr,  &t};
    for (t.image_row_begin = 0; t.image_row_begin < c.out_height; t.image_row_begin = t.image_row_end)
      for (t.n_begin = 0, t.image_row_end = std::min(t.image_row_begin + lines, c.out_height);
           t.n_begin < c.out_channels; t.n_begin = t.n_end) {
        t.n_end = std::min(t.n_begin + row_panel, c.out_channels);
        c.run(kernels, a);
      }
  }
  /// Returns the number that is multiplied by weight element `col` of an output channel. Zeros around the image are not
  /// normalized.
  double operand(int64_t row, int64_t col) const {
    const int64_t taps = c.kernel * c.kernel, k = col / taps, pixel = pixel_of(c, row, col % taps);
    if (pixel < 0) return 0;
    double v = double{x[pixel * c.channels + k]};
    if (c.norm) v = v * double{scale[static_cast<size_t>(k)]} + double{shift[static_cast<size_t>(k)]};
    return c.silu ? v / (1 + std::exp(-v)) : v;
  }
};

// bfloat16 rounds f(x) by at most 2^-9 of itself and silu is made to 2^-12, together less than 2^-8; the norm before it
// errs by less than 2^-20 of its two terms, here at most 9, and silu passes that on less than twice. Sums as in
// linear_tiles_test.cc: 18 roundings within a tile, one for every 32 elements of K, two for bias and residual. Dot
// products sum all elements of K in a row, two roundings for a pair. In float32 nothing else is rounded, silu errs by 8
// roundings of itself, and the generic set rounds a product before it is added.
void expect_convolution(const CpuKernels& kernels, const TilesCase& c) {
  SCOPED_TRACE(fmt::format("{}x{}x{} to {}x{}x{}, kernel {} /{} pad {}{}{}{}, {}", c.in_height, c.in_width, c.channels,
                           c.out_height, c.out_width, c.out_channels, c.kernel, c.stride, c.pad,
                           c.upsample ? " upsampled" : "", c.norm ? " norm" : "", c.silu ? " silu" : "",
                           dtype_info(c.type).name));
  Convolution conv(c);
  const int64_t pixels = c.out_height * c.out_width;
  GuardedBuffer<float> y(pixels * c.out_channels), again(pixels * c.out_channels);
  for (int64_t i = 0; i < y.size(); ++i) y[i] = 77;
  conv.run(kernels, c.out_height, c.out_channels, false, false, y.data());
  for (int64_t row = 0; row < pixels; ++row) {
    std::vector<double> x(static_cast<size_t>(conv.cols()));
    for (int64_t k = 0; k < conv.cols(); ++k) x[static_cast<size_t>(k)] = conv.operand(row, k);
    for (int64_t n = 0; n < c.out_channels; ++n) {
      double sum = 0, products = 0, weights = 0;
      for (int64_t k = 0; k < conv.cols(); ++k) {
        const double w = double{conv.weights[static_cast<size_t>(n * conv.cols() + k)]};
        sum += x[static_cast<size_t>(k)] * w;
        products += std::abs(x[static_cast<size_t>(k)] * w);
        weights += std::abs(w);
      }
      const double rest = double{conv.bias[static_cast<size_t>(n)]} +
                          (c.has_residual ? double{conv.residual[row * c.out_channels + n]} : 0.0);
      const double roundings = static_cast<double>(c.in_f32                    ? 2 * conv.cols() + 2
                                                   : kernels.has_fast_bf16_dot ? conv.cols() + 2
                                                                               : (conv.cols() + 31) / 32 + 20);
      const double bound = products * (c.in_f32 ? 0x1p-21 : 0x1p-8) +
                           (c.norm ? weights * 18 * (c.in_f32 ? 0x1p-23 : 0x1p-20) : 0) +
                           roundings * 0x1p-24 * 1.01 * (products * (1 + 0x1p-6) + 4);
      ASSERT_LE(std::abs(sum + rest - double{y[row * c.out_channels + n]}), bound) << "pixel " << row << ", n " << n;
    }
  }
  // Other shares of lines and columns give the same bits, in place of the residual and past the caches too.
  for (int64_t lines : {1, 2, 5}) {
    for (int64_t i = 0; i < again.size(); ++i) again[i] = c.has_residual ? conv.residual[i] : 77;
    conv.run(kernels, lines, lines == 1 ? 16 : 48, lines != 5, lines == 5, again.data());
    ASSERT_EQ(std::memcmp(y.data(), again.data(), static_cast<size_t>(y.size()) * 4), 0) << lines << " lines at a time";
  }
}

TEST_P(ConvByTiles, EqualTheDefinition) {
  for (int64_t width : {1, 7, 15, 16, 17, 33})
    for (int64_t height : {1, 3, 6}) expect_convolution(kernels(), {{height, width, 32, height, width}, 17});
  for (int64_t out : {1, 16, 32, 33, 40, 64}) expect_convolution(kernels(), {{4, 5, 64, 4, 5}, out});
}

TEST_P(ConvByTiles, NormalizeTheirInput) {
  for (bool silu : {false, true})
    for (bool residual : {false, true}) {
      expect_convolution(kernels(), {{5, 18, 64, 5, 18}, 20, true, silu, residual});
      expect_convolution(kernels(), {{3, 4, 32, 6, 7, 3, 1, 1, true}, 20, true, silu, residual});
    }
}

TEST_P(ConvByTiles, OfEveryShape) {
  for (const Conv2dCase& c :
       {Conv2dCase{7, 5, 32, 4, 3, 3, 2, 1}, Conv2dCase{6, 40, 32, 3, 20, 3, 2, 0},
        Conv2dCase{3, 4, 32, 6, 8, 3, 1, 1, true}, Conv2dCase{3, 4, 32, 5, 7, 3, 1, 1, true},
        Conv2dCase{6, 6, 96, 6, 6, 1, 1, 0}, Conv2dCase{6, 5, 32, 3, 2, 2, 2, 0}, Conv2dCase{9, 9, 32, 3, 3, 1, 4, 0},
        Conv2dCase{4, 4, 32, 4, 4, 5, 1, 2}, Conv2dCase{1, 2, 32, 3, 4, 3, 1, 2}, Conv2dCase{4, 4, 32, 4, 4, 7, 1, 3}})
    expect_convolution(kernels(), {c, 18});
}

TEST_P(ConvByTiles, CutWidthAndKAndLines) {
  // Two regions side by side; more lines than one has; K in parts.
  expect_convolution(kernels(), {{3, 101, 32, 3, 101}, 16});
  expect_convolution(kernels(), {{70, 2, 32, 70, 2}, 16, true, true});
  expect_convolution(kernels(), {{3, 5, 576, 3, 5}, 17, true, true});
}

/// `items` one after the other, each with its own norm and bias, `at_once` of them in a call.
std::vector<float> convolve_items(const CpuKernels& kernels, const TilesCase& c, int64_t items, int64_t at_once) {
  const int64_t in_size = c.in_height * c.in_width * c.channels, out_size = c.out_height * c.out_width * c.out_channels;
  const auto values = [&](int64_t count, uint32_t seed, float size = 1.0f) {
    return test_values(static_cast<size_t>(items * count), seed, size);
  };
  Convolution weights(c);
  const std::vector<float> x = values(in_size, 3, 4.0f), scale = values(c.channels, 6, 2.0f),
                           shift = values(c.channels, 7), bias = values(c.out_channels, 5),
                           residual = values(out_size, 8, 3.0f);
  std::vector<float> y(static_cast<size_t>(items * out_size), 77.0f);
  std::vector<uint8_t> lines(static_cast<size_t>(c.buffer_bytes()) + 64, 0xff);
  std::vector<uint8_t> scratch(static_cast<size_t>(kScratchBytes) + 64, 0xff);
  for (int64_t item = 0; item < items; item += at_once) {
    ConvTiles t = {};
    t.scale = scale.data() + item * c.channels;
    t.shift = shift.data() + item * c.channels;
    t.silu = true;
    t.weight = aligned<void>(weights.packed);
    t.weight_type = c.type;
    t.out_channels = t.n_end = c.out_channels;
    t.image_row_end = c.out_height;
    t.bias = bias.data() + item * c.out_channels;
    t.bias_stride = c.out_channels;
    t.residual = residual.data() + item * out_size;
    t.y = y.data() + item * out_size;
    t.buffer = aligned<void>(lines);
    t.scratch = aligned<void>(scratch);
    t.items = std::min(at_once, items - item);
    c.run(kernels, {x.data() + item * in_size, c.in_height, c.in_width, c.channels, c.out_height, c.out_width, c.kernel,
                    c.stride, c.pad, c.upsample, 0, 0, ActivationLayout::kF32, 0, nullptr, &t});
  }
  return y;
}

void expect_items_together_as_alone(const CpuKernels& kernels, const TilesCase& c) {
  const int64_t most = conv_items_at_once(c.out_width, c.out_height, c.channels, c.kernel, c.stride, c.element_bytes());
  ASSERT_GT(most, 1) << c.out_height << "x" << c.out_width;
  constexpr int64_t kItems = 9;
  const std::vector<float> each = convolve_items(kernels, c, kItems, 1);
  for (int64_t at_once : {int64_t{2}, most})
    EXPECT_EQ(each, convolve_items(kernels, c, kItems, at_once)) << c.out_height << "x" << c.out_width;
}

TEST_P(ConvByTiles, SmallItemsTogetherHaveTheBitsOfEachAlone) {
  for (const TilesCase& c :
       {TilesCase{{8, 8, 64, 8, 8}, 50}, TilesCase{{3, 5, 32, 3, 5}, 33}, TilesCase{{4, 16, 32, 4, 16}, 16},
        TilesCase{{7, 5, 32, 4, 3, 3, 2, 1}, 18}, TilesCase{{3, 4, 32, 6, 7, 3, 1, 1, true}, 18},
        TilesCase{{1, 1, 32, 1, 1}, 16}, TilesCase{{5, 6, 32, 5, 6, 1, 1, 0}, 40}, TilesCase{{4, 4, 576, 4, 4}, 17}})
    expect_items_together_as_alone(kernels(), c);
}

TEST_P(ConvByTiles, OfAnImageWithoutPixels) {
  expect_convolution(kernels(), {{0, 0, 32, 2, 2, 3, 1, 2}, 16});
  expect_convolution(kernels(), {{0, 3, 32, 0, 3}, 16});
  expect_convolution(kernels(), {{3, 0, 32, 3, 0}, 16});
}

REDLINE_INSTANTIATE_PER_ISA(ConvByTiles);

class ConvInF32 : public IsaTest {
 protected:
  void expect(TilesCase c) const {
    c.in_f32 = true;
    for (DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
      c.type = type;
      expect_convolution(kernels(), c);
    }
  }
};

TEST_P(ConvInF32, EqualsTheDefinition) {
  for (int64_t width : {1, 15, 16, 17, 33}) expect({{3, width, 32, 3, width}, 17});
  for (int64_t out : {1, 32, 40}) expect({{4, 5, 64, 4, 5}, out, true, out > 1, out < 40});
}

TEST_P(ConvInF32, OfEveryShape) {
  for (const Conv2dCase& c :
       {Conv2dCase{7, 5, 32, 4, 3, 3, 2, 1}, Conv2dCase{6, 40, 32, 3, 20, 3, 2, 0},
        Conv2dCase{3, 4, 32, 5, 7, 3, 1, 1, true}, Conv2dCase{6, 6, 288, 6, 6, 1, 1, 0},
        Conv2dCase{6, 5, 32, 3, 2, 2, 2, 0}, Conv2dCase{1, 2, 32, 3, 4, 3, 1, 2}, Conv2dCase{4, 4, 32, 4, 4, 7, 1, 3},
        Conv2dCase{0, 0, 32, 2, 2, 3, 1, 2}, Conv2dCase{0, 3, 32, 0, 3}, Conv2dCase{3, 0, 32, 3, 0}})
    expect({c, 18});
  expect({{3, 101, 32, 3, 101}, 16});
  expect({{3, 5, 576, 3, 5}, 17, true, true});
}

TEST_P(ConvInF32, SmallItemsTogetherHaveTheBitsOfEachAlone) {
  for (TilesCase c : {TilesCase{{8, 8, 64, 8, 8}, 50}, TilesCase{{7, 5, 32, 4, 3, 3, 2, 1}, 18}}) {
    c.in_f32 = true;
    expect_items_together_as_alone(kernels(), c);
  }
}

// Overlays have the kernel of their base set.
INSTANTIATE_TEST_SUITE_P(PerBaseIsa, ConvInF32, ::testing::ValuesIn(base_isas()), isa_test_name);

void expect_regions_to_fit(int64_t channels, int64_t kernel, int64_t stride, int64_t element_bytes) {
  const int64_t bytes = conv_buffer_bytes(channels, kernel, stride, element_bytes);
  for (int64_t width = 1; width < 1200; ++width) {
    const ConvRegion region = conv_region(width, channels, kernel, stride, element_bytes);
    ASSERT_GE(region.width, 1);
    ASSERT_GE(region.image_rows, 1);
    ASSERT_LE(region.image_rows, kConvRegionRows);
    ASSERT_LE((region.width + 15) / 16 * region.image_rows, 2 * kConvRegionRows);
    ASSERT_LE(2 * (region.bytes + 63) / 64 * 64, bytes)
        << width << " wide, " << channels << " channels, kernel " << kernel << " /" << stride;
    for (int64_t height : {int64_t{1}, int64_t{8}, width, int64_t{64}, int64_t{300}}) {
      const int64_t items = conv_items_at_once(width, height, channels, kernel, stride, element_bytes);
      if (items == 1) continue;
      const ConvRegion all = conv_region_of(width, height, channels, kernel, stride, items, element_bytes);
      ASSERT_LE(items, kConvMaxItems);
      ASSERT_LE((width + 15) / 16 * height * items, 2 * kConvRegionRows);
      ASSERT_LE(2 * (all.bytes + 63) / 64 * 64, bytes);
    }
  }
}

TEST(ConvRegion, FitsItsBuffer) {
  for (int64_t kernel : {1, 2, 3, 7})
    for (int64_t stride : {1, 2, 4})
      for (int64_t channels : {32, 128, 512, 1280, 2560, 65536})
        for (int64_t element_bytes : {2, 4}) expect_regions_to_fit(channels, kernel, stride, element_bytes);
}

}  // namespace
}  // namespace redline
