// linear_tiles of every instruction set (plain C++ below amx) and weight type against sums in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "kernels/cpu/linear/linear_choice.h"
#include "kernels/cpu/linear/linear_end.h"
#include "support/isa_test.h"
#include "support/random_weight.h"
#include "support/special_values.h"

namespace redline {
namespace {

using testing::GuardedBuffer;
using testing::RandomWeight;
using testing::weight_types;
using LinearTiles = IsaTest;

void* linear_tiles_scratch() {
  alignas(64) static uint8_t bytes[kScratchBytes];
  return bytes;
}

struct LinearTilesCase {
  int64_t n, k, rows, y_stride;
  RandomWeight w;
  std::vector<float> x, bias;
  GuardedBuffer<float> residual, y;

  LinearTilesCase(DType type, int64_t out, int64_t in, int64_t num_rows)
      : n(out), k(in), rows(num_rows), y_stride(out + 5), w(type, out, in, static_cast<uint32_t>(out * 1000 + in)),
        x(test_values(static_cast<size_t>(rows * k), 1, 3.0f)), bias(test_values(static_cast<size_t>(n), 2)),
        residual(rows == 0 ? 0 : (rows - 1) * y_stride + n), y(residual.size()) {
    const std::vector<float> values = test_values(static_cast<size_t>(residual.size()), 3);
    std::copy(values.begin(), values.end(), residual.data());
    std::fill_n(y.data(), y.size(), kUntouched);
  }

  /// Rows [first, first + count) into `out`, with `rest` as residual, one task per `cut` columns.
  void run(const CpuKernels& table, int64_t first, int64_t count, int64_t cut, const float* rest, float* out) const {
    std::vector<uint8_t> space(static_cast<size_t>(activation_layout_bytes(ActivationLayout::kBf16Tiled, count, k)) +
                               64);
    auto* tiles = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(space.data()) + 63) / 64 * 64);
    // Rows past the last hold whatever was there: here the bits of a NaN.
    std::fill(space.begin(), space.end(), 0xff);
    table.prepare_x[static_cast<int>(ActivationLayout::kBf16Tiled)](
        {x.data() + first * k, k, k, 0, count, 0, k, tiles});
    for (int64_t begin = 0; begin < n; begin += cut) {
      LinearArgs a = {};
      a.x = tiles, a.rows = count, a.weight = w.packed.data();
      a.out_features = n, a.in_features = k, a.n_begin = begin, a.n_end = std::min(begin + cut, n);
      a.bias = bias.data(), a.residual = rest, a.y = out, a.y_stride = y_stride, a.scratch = linear_tiles_scratch();
      table.linear_tiles[static_cast<int>(w.dtype)](a);
    }
  }
};

// The error that one element may have. bfloat16 has 8 significant bits: rounding to nearest moves a number by at most
// 2^-8 of itself, x always, w unless it is bfloat16 already; their product by the sum of both and the product of both.
// (A product of two bfloat16 numbers is exact in float32.) In a tile product each of two partial sums of 16 terms has
// 16 roundings, one joins them, one adds them to the sum: the first term passes through 18 and then one per further 32
// elements of K; bias and residual add two. A value of a block format may be computed in float16, each step rounded to
// 11 bits: the scale, the min, their sum with the code, or the scale to 9 bits, then the sum; all of |scale code| +
// |min| at most. A value of zero may become 2^-20 of the largest that its row's scale or min gives, far less than its
// neighbours' roundings. (Other instruction sets compute it in float32.)
// The unit takes subnormals for zero: 2^-126 of each x, w, product and partial sum.
struct Sums {
  double value = 0, products = 0, parts = 0,
         rest = 0;  // sum of x w; of |x w|; of |x| (|scale code| + |min|); bias, residual
};
double bound(const Sums& s, DType type, int64_t k) {
  const double w_rounding = type == DType::kBF16 ? 0 : 0x1p-8 + 0x1p-16;
  const double roundings = static_cast<double>((k + 31) / 32) + 18 + 2;
  return s.products * (0x1p-8 + w_rounding * (1 + 0x1p-8)) +
         s.parts * (dtype_info(type).is_block ? (0x1p-9 + 0x1p-11) * 1.01 : 0) +
         roundings * 0x1p-24 * 1.01 * (s.products * (1 + 0x1p-6) + s.rest) + static_cast<double>(k) * 0x1p-120;
}

void linear_tiles_check_type(const CpuKernels& table, DType type, int64_t n, int64_t k, int64_t rows) {
  SCOPED_TRACE(::testing::Message() << dtype_info(type).name << " N " << n << " K " << k << " rows " << rows);
  LinearTilesCase c(type, n, k, rows);
  c.run(table, 0, rows, n, c.residual.data(), c.y.data());
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t j = 0; j < n; ++j) {
      Sums s;
      for (int64_t i = 0; i < k; ++i) {
        const double x = c.x[static_cast<size_t>(m * k + i)];
        const auto at = static_cast<size_t>(j * k + i);
        s.value += x * double{c.w.values[at]};
        s.products += std::abs(x * double{c.w.values[at]});
        s.parts += std::abs(x) * double{c.w.parts[at]};
      }
      const double residual = c.residual[m * c.y_stride + j], bias = c.bias[static_cast<size_t>(j)];
      s.rest = std::abs(residual) + std::abs(bias);
      ASSERT_LE(std::abs(s.value + bias + residual - double{c.y[m * c.y_stride + j]}), bound(s, type, k))
          << "m " << m << " n " << j;
    }
    for (int64_t j = n; j < c.y_stride && m + 1 < rows; ++j) ASSERT_EQ(c.y[m * c.y_stride + j], kUntouched);
  }
  // Fewer rows, from any first row, in any tile of columns, with y in place of residual, give the same bits.
  for (int64_t count : {int64_t{1}, int64_t{16}, int64_t{17}, rows}) {
    if (count > rows) continue;
    for (int64_t first : {int64_t{0}, rows - count}) {
      GuardedBuffer<float> part((count - 1) * c.y_stride + n);
      std::copy_n(c.residual.data() + first * c.y_stride, part.size(), part.data());
      c.run(table, first, count, first == 0 ? 16 : 48, part.data(), part.data());
      for (int64_t m = 0; m < count; ++m)
        ASSERT_EQ(std::memcmp(part.data() + m * c.y_stride, c.y.data() + (first + m) * c.y_stride,
                              static_cast<size_t>(n) * 4),
                  0)
            << count << " rows from row " << first << ", row " << m << ", differ from the same rows among " << rows;
    }
  }
}

std::vector<int64_t> linear_tiles_in_features(DType type) {
  const int64_t block = dtype_info(type).block_elements;
  if (block == 1) return {1, 31, 32, 33, 97, 544};
  if (block == 32) return {32, 96, 544};
  return {256, 768};
}

// A float32 weight is not rounded; rows of codes with a scale have int8 tiles instead.
bool has_tiles(DType type) { return type != DType::kF32 && dtype_info(type).row_bytes == 0; }

TEST_P(LinearTiles, EveryTypeMatchesFloat64) {
  for (DType type : weight_types()) {
    if (!has_tiles(type)) {
      EXPECT_EQ(kernels().linear_tiles[static_cast<int>(type)], nullptr);
      continue;
    }
    ASSERT_NE(kernels().linear_tiles[static_cast<int>(type)], nullptr) << dtype_info(type).name;
    for (int64_t n : {1, 16, 33})
      linear_tiles_check_type(kernels(), type, n, linear_tiles_in_features(type).back(), 33);
    for (int64_t k : linear_tiles_in_features(type)) linear_tiles_check_type(kernels(), type, 48, k, 19);
    for (int64_t rows : {1, 7, 16, 32})
      linear_tiles_check_type(kernels(), type, 65, linear_tiles_in_features(type)[1], rows);
  }
}

TEST_P(LinearTiles, RealSizes) {
  // The stand-in takes a second for what the unit does in a millisecond: fewer types there.
  const bool unit = kernels().has_tile_unit;
  linear_tiles_check_type(kernels(), DType::kBF16, unit ? 896 : 80, 4864, unit ? 67 : 18);
  linear_tiles_check_type(kernels(), DType::kQ4_K, unit ? 896 : 48, 2048, unit ? 67 : 18);
  if (unit) linear_tiles_check_type(kernels(), DType::kQ8_0, 896, 896, 67);
}

// Up to 64 rows (32 of bfloat16) all sums stay in tiles, one panel, two, three or four; above they wait in
// linear_tiles_scratch. N has a row panel alone, K more steps than are expanded ahead.
TEST_P(LinearTiles, AFewRows) {
  // All of them take the stand-in a minute.
  const std::vector<int64_t> counts = kernels().has_tile_unit
                                          ? std::vector<int64_t>{1, 7, 8, 15, 16, 17, 31, 33, 48, 63, 64, 65}
                                          : std::vector<int64_t>{7, 31, 33, 64, 65};
  for (DType type : weight_types())
    if (has_tiles(type))
      for (int64_t rows : counts)
        linear_tiles_check_type(kernels(), type, 33, dtype_info(type).block_elements == 256 ? 512 : 288, rows);
}

// More rows and columns than the sums in linear_tiles_scratch have room for.
TEST_P(LinearTiles, ManyRowsGiveTheBitsOfFew) {
  const int64_t many = kernels().has_tile_unit ? 1061 : 530;
  for (DType type : {DType::kBF16, DType::kQ4_0}) {
    const int64_t columns = type == DType::kBF16 && kernels().has_fast_bf16_dot ? 1072 : 288;
    LinearTilesCase c(type, columns, kernels().has_tile_unit ? 1056 : 544, many);
    c.run(kernels(), 0, many, c.n, c.residual.data(), c.y.data());
    for (int64_t m : {int64_t{0}, int64_t{511}, int64_t{512}, many - 1}) {
      GuardedBuffer<float> one(c.n);
      c.run(kernels(), m, 1, 96, c.residual.data() + m * c.y_stride, one.data());
      ASSERT_EQ(std::memcmp(one.data(), c.y.data() + m * c.y_stride, static_cast<size_t>(c.n) * 4), 0) << "row " << m;
    }
  }
}

// Compares a kernel that has an end with the kernel without it, followed by activation and prepare_x. All bits are
// equal. In tiles the numbers that are subnormal in bfloat16 may differ: the unit takes them for zero.
void check_end(const CpuKernels& table, DType type, int64_t n, int64_t rows, std::optional<Activation> kind, bool gated,
               bool to_tiles, int64_t cut) {
  SCOPED_TRACE(::testing::Message() << dtype_info(type).name << " N " << n << " rows " << rows << " activation "
                                    << (kind ? static_cast<int>(*kind) : -1) << (gated ? " gated" : "")
                                    << (to_tiles ? " to tiles" : "") << " cut " << cut);
  constexpr int64_t k = 544;
  const RandomWeight w(type, n, k, 5), up(type, n, k, 6);
  const std::vector<float> x = test_values(static_cast<size_t>(rows * k), 1, 3.0f),
                           bias = test_values(static_cast<size_t>(n), 2),
                           up_bias = test_values(static_cast<size_t>(n), 3);
  GuardedBuffer<uint8_t> tiles(activation_layout_bytes(ActivationLayout::kBf16Tiled, rows, k));
  const auto prepare = table.prepare_x[static_cast<int>(ActivationLayout::kBf16Tiled)];
  std::fill_n(tiles.data(), tiles.size(), uint8_t{0xff});
  prepare({x.data(), k, k, 0, rows, 0, k, tiles.data()});
  const auto kernel = table.linear_tiles[static_cast<int>(type)];

  LinearArgs a = {};
  a.x = tiles.data(), a.rows = rows, a.weight = w.packed.data(), a.out_features = n, a.in_features = k;
  a.n_begin = 0, a.n_end = n, a.bias = bias.data(), a.y_stride = n, a.scratch = linear_tiles_scratch();
  GuardedBuffer<float> want(rows * n), second(rows * n), got(rows * n);
  a.y = want.data();
  kernel(a);
  if (gated) {
    LinearArgs b = a;
    b.weight = up.packed.data(), b.bias = up_bias.data(), b.y = second.data();
    kernel(b);
  }
  if (kind) {
    table.activation({want.data(), n, gated ? second.data() : nullptr, n, want.data(), n, rows, n, *kind});
  } else if (gated) {
    for (int64_t i = 0; i < rows * n; ++i) want[i] *= second[i];
  }

  const int64_t form_bytes = activation_layout_bytes(ActivationLayout::kBf16Tiled, rows, n);
  GuardedBuffer<uint8_t> got_tiles(form_bytes), want_tiles(form_bytes);
  std::fill_n(got.data(), got.size(), kUntouched);
  LinearEnd end;
  if (kind) end.activation = &*kind;
  if (gated) end.up_weight = up.packed.data(), end.up_bias = up_bias.data();
  if (to_tiles) end.tiles = got_tiles.data();
  a.y = got.data(), a.end = &end;
  for (int64_t begin = 0; begin < n; begin += cut) {
    a.n_begin = begin, a.n_end = std::min(begin + cut, n);
    kernel(a);
  }
  if (!to_tiles) {
    ASSERT_EQ(std::memcmp(got.data(), want.data(), static_cast<size_t>(rows * n) * 4), 0);
    return;
  }
  prepare({want.data(), n, n, 0, rows, 0, n, want_tiles.data()});
  const int64_t panel_bytes = tiles_panel_bytes(n);
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t column = 0; column < (n + 31) / 32 * 32; ++column) {
      const int64_t at = m / 16 * panel_bytes + column / 32 * 1024 + m % 16 * 64 + column % 32 * 2;
      uint16_t g, e;
      std::memcpy(&g, got_tiles.data() + at, 2);
      std::memcpy(&e, want_tiles.data() + at, 2);
      const bool subnormal = (e & 0x7f80) == 0;
      ASSERT_TRUE(g == e || (subnormal && (g & 0x7fff) == 0)) << "row " << m << " column " << column;
    }
}

TEST_P(LinearTiles, EndEqualsItsParts) {
  const bool unit = kernels().has_tile_unit;
  for (int64_t n : {1, 16, 33, 48, 160})
    for (int64_t rows : {1, 16, 33, 64})
      for (bool gated : {false, true})
        for (bool to_tiles : {false, true})
          check_end(kernels(), DType::kF16, n, rows, Activation::kSilu, gated, to_tiles, n == 160 ? 64 : n);
  for (Activation kind : {Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu, Activation::kRelu})
    check_end(kernels(), DType::kQ4_0, 96, unit ? 70 : 17, kind, false, true, 32);
  check_end(kernels(), DType::kQ8_0, 96, 17, std::nullopt, true, false, 96);
  check_end(kernels(), DType::kQ8_0, 96, 17, std::nullopt, false, true, 96);
  if (!unit) return;
  // More than a range of rows and of columns, and so much of y that it goes past the caches.
  for (bool gated : {false, true})
    for (bool to_tiles : {false, true})
      check_end(kernels(), DType::kQ8_0, 1104, 577, Activation::kGeluTanh, gated, to_tiles, 1104);
}

TEST_P(LinearTiles, NothingToDoTouchesNothing) {
  LinearTilesCase c(DType::kBF16, 17, 40, 3);
  LinearArgs a = {};
  alignas(64) uint8_t tiles[4096] = {};
  a.x = tiles, a.rows = 3, a.weight = c.w.packed.data(), a.out_features = 17, a.in_features = 40;
  a.n_begin = a.n_end = 16, a.y = c.y.data(), a.y_stride = c.y_stride, a.scratch = linear_tiles_scratch();
  kernels().linear_tiles[static_cast<int>(DType::kBF16)](a);
  a.rows = 0, a.n_begin = 0, a.n_end = 17;
  kernels().linear_tiles[static_cast<int>(DType::kBF16)](a);
  for (int64_t i = 0; i < c.y.size(); ++i) ASSERT_EQ(c.y[i], kUntouched);
  // No bias, no residual: x is zero, so is y. K of nothing: bias and residual alone.
  a.rows = 3;
  kernels().linear_tiles[static_cast<int>(DType::kBF16)](a);
  for (int64_t m = 0; m < 3; ++m)
    for (int64_t n = 0; n < 17; ++n) ASSERT_EQ(c.y[m * c.y_stride + n], 0.0f);
  a.in_features = 0, a.bias = c.bias.data(), a.residual = c.residual.data();
  kernels().linear_tiles[static_cast<int>(DType::kBF16)](a);
  for (int64_t m = 0; m < 3; ++m)
    for (int64_t n = 0; n < 17; ++n)
      ASSERT_EQ(c.y[m * c.y_stride + n], c.bias[static_cast<size_t>(n)] + c.residual[m * c.y_stride + n]);
}

TEST_P(LinearTiles, NaNAndInfinityInXStayInTheirRow) {
  for (DType type : {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_K}) {
    SCOPED_TRACE(dtype_info(type).name);
    LinearTilesCase c(type, 20, 256, 9);
    c.x[1 * 256 + 7] = NAN;
    c.x[3 * 256 + 8] = INFINITY;
    c.x[5 * 256 + 9] = -INFINITY;
    c.run(kernels(), 0, 9, 20, c.residual.data(), c.y.data());
    for (int64_t m = 0; m < 9; ++m)
      for (int64_t n = 0; n < 20; ++n) {
        const float y = c.y[m * c.y_stride + n];
        const float w = c.w.values[static_cast<size_t>(n * 256 + (m == 3 ? 8 : 9))];
        if (m == 1) {
          ASSERT_TRUE(std::isnan(y)) << n;
        } else if (m == 3 || m == 5) {
          if (w == 0) ASSERT_FALSE(std::isfinite(y)) << n;  // a zero of a block format may be a little more than zero
          else ASSERT_EQ(y, (w > 0) == (m == 3) ? INFINITY : -INFINITY) << n;
        } else {
          ASSERT_TRUE(std::isfinite(y)) << m << ", " << n;
        }
      }
  }
}

TEST_P(LinearTiles, NaNAndInfinityInTheWeight) {
  for (DType type : {DType::kF16, DType::kBF16}) {
    const int64_t k = 5;
    const bool is_f16 = type == DType::kF16;
    std::vector<uint16_t> bits(16 * 5, is_f16 ? f32_to_f16(1) : f32_to_bf16(1));
    const uint16_t inf = is_f16 ? 0x7c00 : 0x7f80;
    bits[0 * 5 + 2] = inf;
    bits[1 * 5 + 3] = inf | 0x8000;
    bits[2 * 5 + 4] = inf | 0x0020;
    bits[3 * 5 + 4] = 0x7fff;  // a NaN that adding half a unit would make a zero
    bits[4 * 5 + 1] = 0xffff;
    const TensorView view{type, {16, k}, bits.data()};
    std::vector<uint8_t> packed(static_cast<size_t>(packed_bytes(type, 16, k)));
    pack_row_panels(view, 0, 1, packed.data());
    const float x[5] = {0, 1, 1, 1, 1};
    alignas(64) uint8_t tiles[1024] = {};
    kernels().prepare_x[static_cast<int>(ActivationLayout::kBf16Tiled)]({x, k, k, 0, 1, 0, k, tiles});
    float y[16];
    LinearArgs a = {};
    a.x = tiles, a.in_features = k, a.rows = 1, a.weight = packed.data(), a.out_features = a.n_end = 16;
    a.y = y, a.y_stride = 16, a.scratch = linear_tiles_scratch();
    kernels().linear_tiles[static_cast<int>(type)](a);
    EXPECT_EQ(y[0], INFINITY);
    EXPECT_EQ(y[1], -INFINITY);
    for (int n = 2; n < 5; ++n) EXPECT_TRUE(std::isnan(y[n])) << n;
    EXPECT_EQ(y[5], 4.0f);
  }
}

// Scales from the smallest to the largest, none, infinite and NaN, all in one tile.
TEST_P(LinearTiles, ScalesOfAnySize) {
  const uint16_t scales[16] = {0x0000, 0x0001, 0x8001, 0x0400, 0x1400, 0x3c00, 0xbc00, 0x4201,
                               0x7bff, 0xfbff, 0x7c00, 0x7e00, 0x8000, 0x03ff, 0x2e66, 0x5555};
  for (bool extreme : {false, true}) {  // rows 10 and 11 not finite: the others must not notice
    std::vector<uint8_t> bytes;
    for (int n = 0; n < 16; ++n) {
      const uint16_t scale = !extreme && (n == 10 || n == 11) ? 0x3c00 : scales[n];
      bytes.push_back(static_cast<uint8_t>(scale & 0xff));
      bytes.push_back(static_cast<uint8_t>(scale >> 8));
      for (int i = 0; i < 16; ++i) bytes.push_back(static_cast<uint8_t>(i == 7 ? 0x88 : i * 37 + n * 11));
    }
    const TensorView view{DType::kQ4_0, {16, 32}, bytes.data()};
    std::vector<uint8_t> packed(static_cast<size_t>(packed_bytes(DType::kQ4_0, 16, 32)));
    pack_row_panels(view, 0, 1, packed.data());
    const std::vector<float> x = test_values(32, 7, 2.0f);
    alignas(64) uint8_t tiles[1024] = {};
    kernels().prepare_x[static_cast<int>(ActivationLayout::kBf16Tiled)]({x.data(), 32, 32, 0, 1, 0, 32, tiles});
    float y[16];
    LinearArgs a = {};
    a.x = tiles, a.in_features = 32, a.rows = 1, a.weight = packed.data(), a.out_features = a.n_end = 16;
    a.y = y, a.y_stride = 16, a.scratch = linear_tiles_scratch();
    kernels().linear_tiles[static_cast<int>(DType::kQ4_0)](a);
    for (int n = 0; n < 16; ++n) {
      if (extreme && (n == 10 || n == 11)) {
        EXPECT_FALSE(std::isfinite(y[n])) << n;
        continue;
      }
      const uint8_t* block = bytes.data() + n * 18;
      const double scale = double{f16_to_f32(static_cast<uint16_t>(block[0] | block[1] << 8))};
      double sum = 0, products = 0, largest = 0;
      for (int i = 0; i < 32; ++i) {
        const int code = (i < 16 ? block[2 + i] & 15 : block[2 + i - 16] >> 4) - 8;
        sum += double{x[static_cast<size_t>(i)]} * scale * code;
        products += std::abs(double{x[static_cast<size_t>(i)]} * scale * code);
        largest += std::abs(double{x[static_cast<size_t>(i)]} * scale * 8);
      }
      EXPECT_LE(std::abs(double{y[n]} - sum), products * 0x1p-6 + largest * 0x1p-20 + 1e-40) << n << ": " << sum;
    }
  }
}

// Products read bfloat16 tiles only where an instruction multiplies them: a tile unit, or dot products for weights that
// are bfloat16 already. Elsewhere linear_tiles is plain C++ for tests. Rows of 8-bit codes (W8A8) have int8 tiles of
// their own, and float32 weights have none. Each path runs here on every machine: the suffixes give the table of a CPU
// with the instructions.
TEST_P(LinearTiles, TheStandInIsNeverChosen) {
  const auto has_bf16_tiles = [](DType type) {
    bool has = type != DType::kF32;
#define REDLINE_EXCLUDE(F) has = has && type != DType::k##F;
    REDLINE_ROW_FORMATS(REDLINE_EXCLUDE)
#undef REDLINE_EXCLUDE
    return has;
  };
  int count = 0;
  const std::string isa = cpu_isas(&count)[GetParam()].name;
  for (const char* suffix : {"", "+tiles", "+bf16_dot"}) {
    const Result<CpuKernels> table = cpu_kernels_for(isa + suffix);
    ASSERT_TRUE(table.ok()) << table.status().to_string();
    for (DType type : weight_types()) {
      SCOPED_TRACE(::testing::Message() << isa << suffix << " " << dtype_info(type).name);
      EXPECT_EQ(table->linear_tiles[static_cast<int>(type)] != nullptr, has_bf16_tiles(type));
      const bool is_fast = table->has_tile_unit || (type == DType::kBF16 && table->has_fast_bf16_dot);
      const LinearKernels chosen = choose_linear(*table, type, false);
      ASSERT_NE(chosen.run[0], nullptr);
      for (int64_t rows : {1, 64, 512}) {
        const ActivationLayout layout = chosen.layouts.for_rows(rows);
        EXPECT_EQ(layout == ActivationLayout::kBf16Tiled, is_fast && has_bf16_tiles(type) && rows >= 64) << rows;
        EXPECT_EQ(chosen.for_rows(rows), linear_kernel(*table, type, layout)) << rows;
        EXPECT_EQ(choose_linear(*table, type, true).layouts.for_rows(rows), ActivationLayout::kF32);
      }
      if (table->linear_i8[static_cast<int>(type)] != nullptr) {
        EXPECT_EQ(chosen.layouts.for_rows(64), ActivationLayout::kI8Tiled);
      }
    }
  }
}

REDLINE_INSTANTIATE_PER_ISA(LinearTiles);

}  // namespace
}  // namespace redline
