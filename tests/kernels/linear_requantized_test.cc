// Products of block formats whose weights are rounded to int8 again, and x in kI8TiledGroups, against sums in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/isa_test.h"
#include "support/random_weight.h"
#include "support/x_steps.h"

namespace redline {
namespace {

using testing::GuardedBuffer;
using testing::RandomWeight;
using LinearRequantized = IsaTest;

constexpr auto kLayout = ActivationLayout::kI8TiledGroups;
constexpr float kUntouched = -12345.0f;

void* scratch() {
  alignas(64) static uint8_t bytes[kScratchBytes];
  return bytes;
}

std::vector<float> run(const CpuKernels& table, const RandomWeight& w, const std::vector<float>& x, int64_t first,
                       int64_t rows, int64_t cut) {
  std::vector<uint8_t> space(static_cast<size_t>(activation_layout_bytes(kLayout, rows, w.k)) + 64, 0xff);
  auto* prepared = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(space.data()) + 63) / 64 * 64);
  // As tasks do it: columns in parts.
  const int64_t half = std::min(w.k, (w.k / 2 + kI8Group - 1) / kI8Group * kI8Group);
  for (const auto& [begin, end] : {std::pair{int64_t{0}, half}, std::pair{half, w.k}})
    if (begin < end)
      table.prepare_x[static_cast<size_t>(kLayout)](
          {x.data() + first * w.k + begin, w.k, w.k, 0, rows, begin, end, prepared});
  std::vector<float> y(static_cast<size_t>(rows * (w.n + 1)), kUntouched);
  for (int64_t begin = 0; begin < w.n; begin += cut) {
    LinearArgs a = {};
    a.x = prepared, a.rows = rows, a.weight = w.packed.data();
    a.out_features = w.n, a.in_features = w.k, a.n_begin = begin, a.n_end = std::min(begin + cut, w.n);
    a.y = y.data(), a.y_stride = w.n + 1, a.scratch = scratch();
    table.linear_requantized[static_cast<size_t>(w.dtype)](a);
  }
  return y;
}

// x moves to the nearest multiple of its step. Each 128 elements have an exact sum of codes, rounded to float32 where
// steps are finer, multiplied and added in float32; each 256 again.
void check(const CpuKernels& table, DType type, int64_t n, int64_t k, int64_t rows) {
  SCOPED_TRACE(::testing::Message() << dtype_info(type).name << " N " << n << " K " << k << " rows " << rows);
  const RandomWeight w(type, n, k, 7);
  std::mt19937 random(static_cast<uint32_t>(n * 31 + k * 7 + rows));
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows * k));
  // The first of three rows has a large element in one group of five, the second in every group, the third in none: all
  // of a tile's rows without finer steps, some, and several shifts.
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t i = 0; i < k; ++i)
      x[static_cast<size_t>(m * k + i)] =
          normal(random) * (m % 3 < 2 && random() % (m % 3 == 0 ? 640 : 50) == 0 ? 20.0f : 1.0f);
  // Every second row is exact in 8 bits: only weights are rounded.
  for (int64_t m = 1; m < rows; m += 2)
    for (int64_t i = 0; i < k; ++i) x[static_cast<size_t>(m * k + i)] = random() % 2 == 0 ? 1.0f : -1.0f;
  const std::vector<float> y = run(table, w, x, 0, rows, std::max<int64_t>(n, 1));
  std::vector<double> moves(static_cast<size_t>(k));
  for (int64_t m = 0; m < rows; ++m) {
    const float* row = x.data() + m * k;
    const std::vector<double> x_steps = testing::tiled_group_steps(std::span(row, static_cast<size_t>(k)));
    for (int64_t i = 0; i < k; ++i) {
      const double step = x_steps[static_cast<size_t>(i)], steps = step > 0 ? row[i] / step : 0;
      moves[static_cast<size_t>(i)] = (std::abs(steps - std::nearbyint(steps)) + 127 * 0x1p-21) * step;
    }
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0, moved = 0;
      for (int64_t i = 0; i < k; ++i) {
        const auto at = static_cast<size_t>(j * k + i);
        const double of_x = std::abs(double{row[i]}), dx = moves[static_cast<size_t>(i)], dw = w.requantized_moves(at),
                     of_w = std::abs(double{w.values[at]});
        sum += double{w.values[at]} * double{row[i]};
        moved += of_w * dx + of_x * dw + dx * dw;
        magnitude += (of_w + dw) * (of_x + dx);
      }
      const double roundings = static_cast<double>(k / kI8Group * 3 + 10);
      ASSERT_LE(std::abs(sum - double{y[static_cast<size_t>(m * (n + 1) + j)]}),
                moved + roundings * 0x1p-24 * 1.01 * magnitude)
          << "m " << m << " n " << j;
    }
    ASSERT_EQ(y[static_cast<size_t>(m * (n + 1) + n)], kUntouched);
  }
  // Fewer rows, from any first row, in any tile of columns, give the same bits.
  for (int64_t count : {int64_t{1}, int64_t{9}, int64_t{17}, rows}) {
    if (count > rows) continue;
    for (int64_t first : {int64_t{0}, rows - count}) {
      const std::vector<float> part = run(table, w, x, first, count, first == 0 ? 16 : 48);
      for (int64_t m = 0; m < count; ++m)
        ASSERT_EQ(std::memcmp(&part[static_cast<size_t>(m * (n + 1))], &y[static_cast<size_t>((first + m) * (n + 1))],
                              static_cast<size_t>(n) * 4),
                  0)
            << count << " rows from row " << first << ", row " << m;
    }
  }
}

TEST_P(LinearRequantized, MatchesFloat64) {
  int formats = 0;
  for (DType type : testing::weight_types()) {
    if (kernels().linear_requantized[static_cast<size_t>(type)] == nullptr) continue;
    ++formats;
    const int64_t block = dtype_info(type).block_elements;
    for (int64_t rows : {0, 1, 7, 8, 9, 31, 257}) check(kernels(), type, 17, 256, rows);
    for (int64_t n : {0, 1, 15, 16, 33, 272}) check(kernels(), type, n, 256, 9);
    for (int64_t k : {0, 32, 96, 224, 256, 544, 768, 1056})
      if (k % block == 0) check(kernels(), type, 33, k, 18);
  }
  if (formats == 0) GTEST_SKIP() << "this instruction set does not have it: it needs dot products of four bytes";
}

TEST_P(LinearRequantized, NumbersThatAreNotFinite) {
  auto* const kernel = kernels().linear_requantized[static_cast<size_t>(DType::kQ4_0)];
  if (kernel == nullptr) GTEST_SKIP() << "this instruction set does not have it: it needs dot products of four bytes";
  const RandomWeight w(DType::kQ4_0, 16, 512, 3);
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> x(size_t{2} * 512, 1.0f);
    x[512 + 300] = bad;
    const std::vector<float> y = run(kernels(), w, x, 0, 2, 16);
    for (size_t n = 0; n < 16; ++n) {
      EXPECT_TRUE(std::isfinite(y[n]));
      EXPECT_TRUE(std::isnan(y[17 + n]));
    }
  }
}

REDLINE_INSTANTIATE_PER_ISA(LinearRequantized);

}  // namespace
}  // namespace redline
