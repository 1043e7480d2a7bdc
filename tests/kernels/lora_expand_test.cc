// linear[kI8], the up matrices of adapters in 8 bits, of every instruction set against float64, and their packing;
// linear_q8[kI8], a few rows by their down matrices, against linear_q8[kQ8_0].
#include "support/guarded_buffer.h"
#include "support/isa_test.h"
#include "support/random_weight.h"
#include "support/vector_sets.h"
#include "tensor/lora_up.h"

namespace redline {
namespace {

using testing::GuardedBuffer;
using LoraExpand = IsaTest;

constexpr int64_t kRanks[] = {0, 1, 3, 8, 15, 16, 17, 37, 64};

/// One scale for 16 ranks of a row: half a step of the largest, and the scale is rounded up to bfloat16.
TEST(LoraUp, CodesAreTheNearest) {
  for (const int64_t rows : {0, 1, 15, 16, 17, 48})
    for (const int64_t rank : kRanks) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << rank);
      const std::vector<float> up = test_values(static_cast<size_t>(rows * rank), 7);
      std::vector<uint8_t> packed(static_cast<size_t>(lora_up_bytes(rows, rank)));
      pack_lora_up(up.data(), rows, rank, packed.data());
      std::vector<float> rounded(up.size());
      unpack_lora_up(packed.data(), rows, rank, rounded.data());
      for (int64_t n = 0; n < rows; ++n)
        for (int64_t r = 0; r < rank; ++r) {
          const int64_t begin = r / kLoraGroup * kLoraGroup, end = std::min(begin + kLoraGroup, rank);
          float most = 0;
          for (int64_t i = begin; i < end; ++i) most = std::max(most, std::abs(up[static_cast<size_t>(n * rank + i)]));
          const auto i = static_cast<size_t>(n * rank + r);
          ASSERT_LE(std::abs(rounded[i] - up[i]), most / 127 * 0.5 * (1 + 0x1p-7) * (1 + 0x1p-20)) << n << ", " << r;
        }
    }
}

TEST(LoraUp, WhatIsNoNumberStaysInItsGroup) {
  std::vector<float> up(2 * 32, 0.25f), rounded(up.size());
  up[3] = std::numeric_limits<float>::infinity();
  up[32 + 20] = 0x1p-120f;
  for (int i = 16; i < 32; ++i) up[static_cast<size_t>(32 + i)] = 0x1p-120f;
  std::vector<uint8_t> packed(static_cast<size_t>(lora_up_bytes(2, 32)));
  pack_lora_up(up.data(), 2, 32, packed.data());
  unpack_lora_up(packed.data(), 2, 32, rounded.data());
  for (size_t i = 0; i < 16; ++i) ASSERT_TRUE(std::isnan(rounded[i]));
  for (size_t i = 16; i < 48; ++i) ASSERT_NEAR(rounded[i], 0.25, 0.25 / 127);
  for (size_t i = 48; i < 64; ++i) ASSERT_EQ(rounded[i], 0);
}

struct LoraCase {
  int64_t rows, n, rank, x_stride, y_stride;
  std::vector<float> up, t, y, gate;
  std::vector<uint8_t> packed;

  LoraCase(int64_t rows, int64_t n, int64_t rank)
      : rows(rows), n(n), rank(rank), x_stride(rank + 3), y_stride(n + 5),
        up(test_values(static_cast<size_t>(n * rank), 1)), t(test_values(static_cast<size_t>(rows * x_stride), 2, 40)),
        y(test_values(static_cast<size_t>(rows * y_stride), 3, 10)), gate(test_values(static_cast<size_t>(n), 4)),
        packed(static_cast<size_t>(lora_up_bytes(n, rank))) {
    pack_lora_up(up.data(), n, rank, packed.data());
    unpack_lora_up(packed.data(), n, rank, up.data());
  }
  LinearArgs args(float* out, void* scratch, bool gated) const {
    LinearArgs a = {};
    a.x = t.data();
    a.x_stride = x_stride;
    a.rows = rows;
    a.weight = packed.data();
    a.out_features = n;
    a.in_features = rank;
    a.n_end = n;
    a.residual = out;
    a.y = out;
    a.y_stride = y_stride;
    a.scratch = scratch;
    a.gate = gated ? gate.data() : nullptr;
    return a;
  }
};

// In each group of 16, t moves by half a step of its largest element, and the sum takes three roundings more; the gate
// and y follow.
TEST_P(LoraExpand, MatchesFloat64) {
  std::vector<float> scratch(kScratchBytes / 4);
  auto* const expand = kernels().linear[static_cast<int>(DType::kI8)];
  for (const int64_t rank : kRanks)
    for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{0, 16},
                                  {1, 1},
                                  {1, 15},
                                  {1, 16},
                                  {1, 17},
                                  {2, 33},
                                  {3, 48},
                                  {4, 16},
                                  {5, 97},
                                  {1, 896},
                                  {16, 31}})
      for (const bool gated : {false, true}) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << n << " x " << rank << (gated ? ", gated" : ""));
        const LoraCase c(rows, n, rank);
        GuardedBuffer<float> y(std::max<int64_t>(0, rows - 1) * c.y_stride + n);
        std::copy_n(c.y.data(), std::min<int64_t>(y.size(), std::ssize(c.y)), y.data());
        expand(c.args(y.data(), scratch.data(), gated));
        for (int64_t m = 0; m < rows; ++m)
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0, magnitude = 0, moved = 0;
            for (int64_t begin = 0; begin < rank; begin += kLoraGroup) {
              double most = 0, ups = 0;
              for (int64_t r = begin; r < std::min(begin + kLoraGroup, rank); ++r) {
                const double t = c.t[static_cast<size_t>(m * c.x_stride + r)],
                             u = c.up[static_cast<size_t>(j * rank + r)];
                sum += t * u;
                magnitude += std::abs(t * u);
                most = std::max(most, std::abs(t));
                ups += std::abs(u);
              }
              moved += most / (127 * 128) * 0.501 * ups;
            }
            const double gate = gated ? c.gate[static_cast<size_t>(j)] : 1,
                         before = c.y[static_cast<size_t>(m * c.y_stride + j)];
            const double groups = static_cast<double>(rank) / kLoraGroup + 1;
            ASSERT_NEAR(y[m * c.y_stride + j], before + gate * sum,
                        std::abs(gate) * (moved + (groups + 4) * kRounding * 1.01 * (magnitude + moved)) +
                            2 * kRounding * (std::abs(before) + magnitude + moved))
                << m << ", " << j;
          }
      }
}

// A row has the same bits among others and alone, and columns in any parts.
TEST_P(LoraExpand, RowsAndColumnsHaveTheirOwnBits) {
  std::vector<float> scratch(kScratchBytes / 4);
  auto* const expand = kernels().linear[static_cast<int>(DType::kI8)];
  const LoraCase c(7, 83, 24);
  std::vector<float> together = c.y, apart = c.y;
  expand(c.args(together.data(), scratch.data(), false));
  for (int64_t m = 0; m < c.rows; ++m)
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 48}, {48, 64}, {64, 64}, {64, 83}}) {
      LinearArgs a = c.args(apart.data() + m * c.y_stride, scratch.data(), false);
      a.x = c.t.data() + m * c.x_stride;
      a.rows = 1;
      a.n_begin = begin;
      a.n_end = end;
      expand(a);
    }
  EXPECT_EQ(together, apart);
}

TEST_P(LoraExpand, WhatIsNoNumberStaysInItsRow) {
  std::vector<float> scratch(kScratchBytes / 4);
  LoraCase c(3, 20, 16);
  c.t[static_cast<size_t>(c.x_stride + 2)] = -std::numeric_limits<float>::infinity();
  for (int64_t r = 0; r < c.rank; ++r) c.t[static_cast<size_t>(2 * c.x_stride + r)] = 0x1p-120f;
  std::vector<float> y = c.y;
  kernels().linear[static_cast<int>(DType::kI8)](c.args(y.data(), scratch.data(), false));
  for (int64_t j = 0; j < c.n; ++j) {
    EXPECT_FALSE(std::isnan(y[static_cast<size_t>(j)]));
    EXPECT_TRUE(std::isnan(y[static_cast<size_t>(c.y_stride + j)]));
    EXPECT_EQ(y[static_cast<size_t>(2 * c.y_stride + j)], c.y[static_cast<size_t>(2 * c.y_stride + j)]);
  }
}

// The rows of a segment are multiplied by either kernel, by their number. linear_q8[kQ8_0] has a float64 reference.
TEST_P(LoraExpand, ShrinkHasTheBitsOfLinearQ8) {
  std::vector<float> scratch(kScratchBytes / 4);
  constexpr int64_t kRows = 3;
  for (const int64_t cols : {0, 32, 224, 256, 288, 896})
    for (const int64_t rank : {1, 15, 16, 17, 32}) {
      SCOPED_TRACE(::testing::Message() << cols << " to " << rank);
      const testing::RandomWeight down(DType::kQ8_0, rank, cols, 5);
      std::vector<float> x = test_values(static_cast<size_t>(kRows * cols), 6, 3);
      for (int64_t i = 0; i < cols; ++i) x[static_cast<size_t>(cols + i)] *= i < 64 ? 20.0f : 0.1f;  // shifts
      GuardedBuffer<uint8_t> prepared(activation_layout_bytes(ActivationLayout::kI8Grouped, kRows, cols));
      kernels().prepare_x[static_cast<int>(ActivationLayout::kI8Grouped)](
          {x.data(), cols, cols, 0, kRows, 0, cols, prepared.data()});
      const auto product = [&](DType type, float* y) {
        LinearArgs a = {};
        a.x = prepared.data();
        a.x_stride = a.in_features = cols;
        a.rows = kRows;
        a.weight = down.packed.data();
        a.out_features = a.n_end = a.y_stride = rank;
        a.y = y;
        a.scratch = scratch.data();
        kernels().linear_q8[static_cast<int>(type)](a);
      };
      GuardedBuffer<float> expected(kRows * rank), t(kRows * rank);
      product(DType::kQ8_0, expected.data());
      product(DType::kI8, t.data());
      for (int64_t i = 0; i < t.size(); ++i) ASSERT_EQ(t[i], expected[i]) << i;
    }
}

// Integers are the same everywhere, and all vector sets fuse their multiply-adds alike.
TEST(LoraExpandSets, GiveTheSameBits) {
  std::vector<float> scratch(kScratchBytes / 4);
  for (const int64_t rows : {1, 2, 5}) {
    const LoraCase c(rows, 83, 37);
    std::vector<float> first;
    for_each_vector_set([&](const char* name, const CpuKernels& table) {
      std::vector<float> y = c.y;
      table.linear[static_cast<int>(DType::kI8)](c.args(y.data(), scratch.data(), true));
      if (first.empty()) first = y;
      EXPECT_EQ(first, y) << name << ", " << rows << " rows";
    });
  }
}

REDLINE_INSTANTIATE_PER_ISA(LoraExpand);

}  // namespace
}  // namespace redline
