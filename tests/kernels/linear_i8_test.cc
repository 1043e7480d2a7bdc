// w8a8: x in kI8, and its products by every instruction set, by vectors and by tiles, against sums in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/linear/linear_end.h"
#include "support/isa_test.h"
#include "support/random_weight.h"
#include "support/special_values.h"
#include "support/vector_sets.h"

namespace redline {
namespace {

using testing::GuardedBuffer;
using testing::RandomWeight;
using LinearI8 = IsaTest;

constexpr auto kType = static_cast<size_t>(DType::kW8A8);
using LinearI8Kernel = void (*)(const LinearArgs&);

void* linear_i8_scratch() {
  alignas(64) static uint8_t bytes[kScratchBytes];
  return bytes;
}

/// x in a form, 64 bytes aligned. What rows past the last hold are the bits of a NaN.
class Prepared {
 public:
  Prepared(const CpuKernels& table, ActivationLayout form, const float* x, int64_t rows, int64_t k)
      : space_(static_cast<size_t>(activation_layout_bytes(form, rows, k)) + 64, 0xff) {
    data_ = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(space_.data()) + 63) / 64 * 64);
    // As tasks do it: rows and columns in parts.
    const int64_t grain = activation_layout_grain(form), half = rows / 2,
                  cut = std::min(k, (k / 2 + grain - 1) / grain * grain);
    for (const auto& [row, row_end] : {std::pair{int64_t{0}, half}, std::pair{half, rows}})
      for (const auto& [col, col_end] : {std::pair{int64_t{0}, cut}, std::pair{cut, k}})
        if (col < col_end || cut == k)
          table.prepare_x[static_cast<size_t>(form)]({x + row * k + col, k, k, row, row_end, col, col_end, data_});
  }
  const uint8_t* data() const { return data_; }
  int8_t code(int64_t k, int64_t row, int64_t col) const {
    return static_cast<int8_t>(data_[row / 16 * i8_panel_bytes(k) + col / 64 * 1024 + row % 16 * 64 + col % 64]);
  }
  template <class T>
  T number(int64_t k, int64_t row, int64_t chunk, int64_t line) const {
    T value;
    std::memcpy(&value, data_ + row / 16 * i8_panel_bytes(k) + i8_scales_at(k) + chunk * 128 + line * 64 + row % 16 * 4,
                4);
    return value;
  }

 private:
  std::vector<uint8_t> space_;
  uint8_t* data_;
};

// scale = max / 127 rounded, x / scale by a rounded reciprocal: within half a unit but for a few roundings of x /
// scale, which is at most 127.
TEST_P(LinearI8, Prepare) {
  for (int64_t k : {1, 15, 16, 17, 63, 64, 65, 127, 1023, 1024, 1025, 2999})
    for (int64_t rows : {1, 16, 19}) {
      const std::vector<float> x = test_values(static_cast<size_t>(rows * k), static_cast<uint64_t>(k), 3.0f);
      const Prepared p(kernels(), ActivationLayout::kI8Tiled, x.data(), rows, k);
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t begin = 0; begin < k; begin += kI8Chunk) {
          const int64_t end = std::min(begin + kI8Chunk, k);
          float largest = 0;
          for (int64_t i = begin; i < end; ++i)
            largest = std::max(largest, std::abs(x[static_cast<size_t>(row * k + i)]));
          const auto scale = p.number<float>(k, row, begin / kI8Chunk, 0);
          ASSERT_EQ(scale, largest / 127.0f);
          int32_t sum = 0;
          for (int64_t i = begin; i < end; ++i) {
            const double exact = double{x[static_cast<size_t>(row * k + i)]} / double{scale};
            ASSERT_LE(std::abs(p.code(k, row, i) - exact), 0.5 + 127 * 4 * kRounding);
            sum += p.code(k, row, i);
          }
          for (int64_t i = end; i % 64 != 0; ++i) ASSERT_EQ(p.code(k, row, i), 0);
          ASSERT_EQ(p.number<int32_t>(k, row, begin / kI8Chunk, 1), sum);
        }
    }
}

TEST_P(LinearI8, WhatIsNotFiniteMakesItsRowNaN) {
  const int64_t k = 1088, n = 16, rows = 5;
  const RandomWeight w(DType::kW8A8, n, k, 3);
  std::vector<float> x = test_values(rows * k, 1);
  x[0 * k + 1080] = NAN;
  x[2 * k + 5] = INFINITY;
  for (int64_t i = 0; i < k; ++i) x[static_cast<size_t>(3 * k + i)] = i % 2 ? 1e-35f : -1e-42f;  // counts as zero
  const Prepared p(kernels(), ActivationLayout::kI8Tiled, x.data(), rows, k);
  for (LinearI8Kernel kernel : {kernels().linear_i8[kType], kernels().linear_i8_tiles[kType]}) {
    float y[rows * n];
    kernel({p.data(), 0, rows, w.packed.data(), n, k, 0, n, nullptr, nullptr, y, n, linear_i8_scratch()});
    for (int64_t j = 0; j < n; ++j) {
      EXPECT_TRUE(std::isnan(y[0 * n + j]) && std::isnan(y[2 * n + j]));
      EXPECT_TRUE(std::isfinite(y[1 * n + j]) && std::isfinite(y[4 * n + j]));
      EXPECT_EQ(y[3 * n + j], 0.0f);
    }
  }
}

struct LinearI8Case {
  int64_t n, k, rows, y_stride;
  RandomWeight w;
  std::vector<float> x, bias, gate;
  GuardedBuffer<float> residual;

  LinearI8Case(int64_t out, int64_t in, int64_t num_rows)
      : n(out), k(in), rows(num_rows), y_stride(out + 5),
        w(DType::kW8A8, out, in, static_cast<uint32_t>(out * 1000 + in)),
        x(test_values(static_cast<size_t>(rows * k), 1, 3.0f)), bias(test_values(static_cast<size_t>(n), 2)),
        gate(test_values(static_cast<size_t>(n), 4)), residual(rows == 0 ? 0 : (rows - 1) * y_stride + n) {
    const std::vector<float> values = test_values(static_cast<size_t>(residual.size()), 3);
    std::copy(values.begin(), values.end(), residual.data());
  }

  /// Rows [first, first + count) in tasks of `cut` columns.
  std::vector<float> run(const CpuKernels& table, ActivationLayout form, LinearI8Kernel kernel, int64_t first,
                         int64_t count, int64_t cut) const {
    std::vector<float> y(static_cast<size_t>(count * y_stride), kUntouched);
    const Prepared p(table, form, x.data() + first * k, count, k);
    for (int64_t begin = 0; begin < n; begin += cut) {
      LinearArgs a = {};
      a.x = p.data(), a.rows = count, a.weight = w.packed.data();
      a.out_features = n, a.in_features = k, a.n_begin = begin, a.n_end = std::min(begin + cut, n);
      a.bias = bias.data(), a.gate = gate.data(), a.residual = residual.data() + first * y_stride;
      a.y = y.data(), a.y_stride = y_stride, a.scratch = linear_i8_scratch();
      kernel(a);
    }
    return y;
  }
};

// Sums of codes are exact. What is rounded: x (half a unit of its scale), each chunk or group's product with the scale
// and its addition, the row's scale, bias, gate and residual.
void check_linear_i8(const CpuKernels& table, ActivationLayout form, LinearI8Kernel kernel, int64_t n, int64_t k,
                     int64_t rows) {
  SCOPED_TRACE(::testing::Message() << "N " << n << " K " << k << " rows " << rows << " form "
                                    << static_cast<int>(form));
  const LinearI8Case c(n, k, rows);
  const std::vector<float> y = c.run(table, form, kernel, 0, rows, std::max<int64_t>(n, 1));
  // Elements that share a scale, and a step that is the scale or, if smaller, half of it up to three times.
  const bool is_tiled = form == ActivationLayout::kI8Tiled;
  const int64_t chunk = is_tiled ? kI8Chunk : kQ8Group, part = is_tiled ? kI8Chunk : kQ8Step;
  std::vector<double> moves(static_cast<size_t>(k));
  for (int64_t m = 0; m < rows; ++m) {
    const float* x = c.x.data() + m * k;
    for (int64_t begin = 0; begin < k; begin += chunk) {
      float largest = 0;
      const int64_t end = std::min(begin + chunk, k);
      for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
      for (int64_t at = begin; at < end; at += part) {
        const int64_t part_end = std::min(at + part, end);
        float of_part = 0, bound = largest;
        for (int64_t i = at; i < part_end; ++i) of_part = std::max(of_part, std::abs(x[i]));
        while (!is_tiled && bound > largest / 8 && of_part <= bound / 2) bound /= 2;
        for (int64_t i = at; i < part_end; ++i) moves[static_cast<size_t>(i)] = double{bound} / 254 * (1 + 0x1p-14);
      }
    }
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0, moved = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double w = c.w.values[static_cast<size_t>(j * k + i)];
        sum += w * double{x[i]};
        magnitude += std::abs(w) * (std::abs(double{x[i]}) + moves[static_cast<size_t>(i)]);
        moved += std::abs(w) * moves[static_cast<size_t>(i)];
      }
      const double bias = c.bias[static_cast<size_t>(j)], gate = c.gate[static_cast<size_t>(j)],
                   residual = c.residual[m * c.y_stride + j];
      const double expected = (sum + bias) * gate + residual;
      const double roundings = static_cast<double>(k / part) * 2 + 10;
      const double bound = std::abs(gate) * moved +
                           roundings * kRounding * (std::abs(gate) * (magnitude + std::abs(bias)) + std::abs(residual));
      ASSERT_LE(std::abs(expected - double{y[static_cast<size_t>(m * c.y_stride + j)]}), bound)
          << "m " << m << " n " << j;
    }
    for (int64_t j = n; j < c.y_stride; ++j) ASSERT_EQ(y[static_cast<size_t>(m * c.y_stride + j)], kUntouched);
  }
  // Fewer rows, from any first row, in any tile of columns, give the same bits.
  for (int64_t count : {int64_t{1}, int64_t{6}, int64_t{16}, int64_t{17}, rows}) {
    if (count > rows) continue;
    for (int64_t first : {int64_t{0}, rows - count}) {
      const std::vector<float> part = c.run(table, form, kernel, first, count, first == 0 ? 16 : 48);
      for (int64_t m = 0; m < count; ++m)
        ASSERT_EQ(std::memcmp(&part[static_cast<size_t>(m * c.y_stride)],
                              &y[static_cast<size_t>((first + m) * c.y_stride)], static_cast<size_t>(n) * 4),
                  0)
            << count << " rows from row " << first << ", row " << m;
    }
  }
}

TEST_P(LinearI8, MatchesFloat64) {
  const bool unit = kernels().has_tile_unit;
  for (LinearI8Kernel kernel : {kernels().linear_i8[kType], kernels().linear_i8_tiles[kType]}) {
    // The stand-in of the tile unit takes a second for what that does in a millisecond.
    const bool slow = kernel == kernels().linear_i8_tiles[kType] && !unit;
    for (int64_t rows : {0, 1, 5, 15, 16, 17, 31, 33, 47})
      check_linear_i8(kernels(), ActivationLayout::kI8Tiled, kernel, 33, 96, rows);
    for (int64_t n : {0, 1, 15, 16, 17, 47, 64, 65})
      check_linear_i8(kernels(), ActivationLayout::kI8Tiled, kernel, n, 160, 19);
    for (int64_t k : {0, 32, 64, 992, 1024, 1056, 2080})
      check_linear_i8(kernels(), ActivationLayout::kI8Tiled, kernel, 37, k, 18);
    if (!slow) check_linear_i8(kernels(), ActivationLayout::kI8Tiled, kernel, 896, 4864, 67);
  }
}

TEST_P(LinearI8, FewRowsInGroupsMatchFloat64) {
  const LinearI8Kernel kernel = kernels().linear_q8[kType];
  ASSERT_NE(kernel, nullptr);
  for (int64_t rows : {0, 1, 2, 3, 4, 5, 6, 7, 17})
    check_linear_i8(kernels(), ActivationLayout::kI8Grouped, kernel, 65, 96, rows);
  for (int64_t k : {0, 32, 64, 1056}) check_linear_i8(kernels(), ActivationLayout::kI8Grouped, kernel, 37, k, 4);
  check_linear_i8(kernels(), ActivationLayout::kI8Grouped, kernel, 896, 4864, 2);
}

// More rows and columns than the sums in linear_i8_scratch have room for.
TEST_P(LinearI8, ManyRowsGiveTheBitsOfFew) {
  const auto check = [&](LinearI8Kernel kernel, const LinearI8Case& c) {
    const std::vector<float> y = c.run(kernels(), ActivationLayout::kI8Tiled, kernel, 0, c.rows, c.n);
    for (int64_t m : {int64_t{0}, int64_t{258}, std::min<int64_t>(512, c.rows - 2), c.rows - 1}) {
      const std::vector<float> row = c.run(kernels(), ActivationLayout::kI8Tiled, kernel, m, 1, 1024);
      ASSERT_EQ(std::memcmp(row.data(), &y[static_cast<size_t>(m * c.y_stride)], static_cast<size_t>(c.n) * 4), 0) << m;
    }
  };
  const bool unit = kernels().has_tile_unit;
  check(kernels().linear_i8_tiles[kType], {unit ? 1100 : 1072, unit ? 1120 : 64, unit ? 543 : 259});
  check(kernels().linear_i8[kType], {529, 2080, 531});
}

// Integers are the same everywhere, and all vector sets fuse their multiply-adds alike.
TEST(LinearI8Sets, GiveTheSameBits) {
  const LinearI8Case c(100, 2112, 37);
  std::vector<float> first;
  for_each_vector_set([&](const char* name, const CpuKernels& table) {
    if (table.worker_begin) table.worker_begin();
    for (LinearI8Kernel kernel : {table.linear_i8[kType], table.linear_i8_tiles[kType]}) {
      const std::vector<float> y = c.run(table, ActivationLayout::kI8Tiled, kernel, 0, c.rows, c.n);
      if (first.empty()) first = y;
      EXPECT_EQ(first, y) << name;
    }
    if (table.worker_end) table.worker_end();
  });
}

// A kernel with a LinearEnd gives what its parts give one after the other, in the order that gated_linear states.
TEST_P(LinearI8, Ends) {
  const bool unit = kernels().has_tile_unit;
  const int64_t n = 80, k = unit ? 1120 : 96, rows = unit ? 300 : 37;
  const LinearI8Case c(n, k, rows);
  const RandomWeight up(DType::kW8A8, n, k, 77);
  const std::vector<float> up_bias = test_values(n, 8);
  const Prepared p(kernels(), ActivationLayout::kI8Tiled, c.x.data(), rows, k);
  const auto product = [&](const RandomWeight& w, const float* bias, const LinearEnd* end, float* y) {
    LinearArgs a = {};
    a.x = p.data(), a.rows = rows, a.weight = w.packed.data(), a.out_features = n, a.in_features = k, a.n_end = n;
    a.bias = bias, a.y = y, a.y_stride = n, a.scratch = linear_i8_scratch(), a.end = end;
    kernels().linear_i8_tiles[kType](a);
  };
  const auto size = static_cast<size_t>(rows * n);
  std::vector<float> gate_y(size), up_y(size), expected(size), y(size);
  product(c.w, c.bias.data(), nullptr, gate_y.data());
  product(up, up_bias.data(), nullptr, up_y.data());
  const Activation silu = Activation::kSilu;
  kernels().activation({gate_y.data(), n, up_y.data(), n, expected.data(), n, rows, n, silu});
  LinearEnd end = {&silu, up.packed.data(), up_bias.data()};
  product(c.w, c.bias.data(), &end, y.data());
  for (size_t i = 0; i < size; ++i) ASSERT_NEAR(y[i], expected[i], 1e-6 + 4e-7 * std::abs(expected[i])) << i;
  // The end writes bfloat16 tiles instead of rows.
  std::vector<uint8_t> space(static_cast<size_t>(activation_layout_bytes(ActivationLayout::kBf16Tiled, rows, n)) + 64);
  auto* tiles = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(space.data()) + 63) / 64 * 64);
  end.tiles = tiles;
  product(c.w, c.bias.data(), &end, nullptr);
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t j = 0; j < n; ++j) {
      uint16_t bits;
      std::memcpy(&bits, tiles + m / 16 * tiles_panel_bytes(n) + j / 32 * 1024 + m % 16 * 64 + j % 32 * 2, 2);
      ASSERT_EQ(bf16_to_f32(bits), bf16_to_f32(f32_to_bf16(y[static_cast<size_t>(m * n + j)]))) << m << " " << j;
    }
}

REDLINE_INSTANTIATE_PER_ISA(LinearI8);

}  // namespace
}  // namespace redline
