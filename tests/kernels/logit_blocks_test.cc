// block_max and block_exp_sum: every instruction set against float64.
#include "kernels/cpu/logit_blocks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "support/isa_test.h"
#include "support/special_values.h"

namespace redline {
namespace {

// Around one and two blocks, around vector widths in the last one, a prime, a real vocabulary.
const int64_t kLogitBlocksSizes[] = {1, 2, 15, 16, 17, 127, 128, 129, 144, 255, 256, 257, 1009, 32000};

using LogitBlocks = IsaTest;

TEST_P(LogitBlocks, MaximaAreExact) {
  for (const int64_t n : kLogitBlocksSizes) {
    std::vector<float> x = test_values(n + 1, n, 5.0f);
    if (n > 2) x[2] = -kInf;
    std::vector<float> top(num_logit_blocks(n) + 1, 77.0f);
    EXPECT_TRUE(kernels().block_max({x.data() + 1, n, top.data()}));
    for (int64_t b = 0; b < num_logit_blocks(n); ++b) {
      const auto begin = x.begin() + 1 + b * kLogitBlock;
      EXPECT_EQ(top[b], *std::max_element(begin, begin + std::min(kLogitBlock, n - b * kLogitBlock)));
    }
    EXPECT_EQ(top.back(), 77.0f);
  }
}

TEST_P(LogitBlocks, EveryNanIsFound) {
  for (const int64_t n : {1, 17, 128, 300})
    for (int64_t i = 0; i < n; ++i)
      for (const float nan : {std::nanf(""), -std::nanf("")}) {
        std::vector<float> x(n, -kInf), top(num_logit_blocks(n));
        EXPECT_TRUE(kernels().block_max({x.data(), n, top.data()}));
        EXPECT_EQ(top[0], -kInf);
        x[i] = kInf;
        EXPECT_TRUE(kernels().block_max({x.data(), n, top.data()}));
        x[i] = nan;
        EXPECT_FALSE(kernels().block_max({x.data(), n, top.data()})) << n << ", " << i;
      }
}

BlockExpSumArgs weights_of(const std::vector<float>& x, float best, float temperature) {
  return {.x = x.data(), .count = std::ssize(x), .best = best, .scale = 1 / temperature};
}

std::vector<float> logits(int64_t n) {
  std::vector<float> x = test_values(n, n, 6.0f);
  if (n > 3) x[3] = -kInf;
  return x;
}

TEST_P(LogitBlocks, WeightsAreWithinTheBound) {
  for (const int64_t n : kLogitBlocksSizes)
    for (const float temperature : {0.01f, 0.1f, 0.7f, 1.0f, 3.0f}) {
      const std::vector<float> x = logits(n);
      const float best = *std::max_element(x.begin(), x.end());
      std::vector<float> weights(n + 1, 77.0f);
      BlockExpSumArgs args = weights_of(x, best, temperature);
      args.weights = weights.data();
      kernels().block_exp_sum(args);
      for (int64_t i = 0; i < n; ++i) {
        const double d = (double{x[i]} - best) / temperature, weight = std::exp(d);
        const double error = weight > 0 ? weight * (5 * std::abs(d) + 4) * kRounding : 0;  // and 1 / temperature
        ASSERT_NEAR(weights[i], weight, error + 0x1p-126) << n << ", logit " << i;
      }
      EXPECT_EQ(weights.back(), 77.0f);
    }
}

/// The bits of every set are those of this one.
TEST_P(LogitBlocks, WeightsHaveTheSameBitsOnEverySet) {
  const CpuKernels generic = cpu_kernels_for("generic").value();
  for (const float temperature : {0.05f, 1.0f}) {
    const std::vector<float> x = test_values(1 << 20, 5, 8.0f);
    std::vector<float> want(x.size()), got(x.size());
    BlockExpSumArgs args = weights_of(x, 8, temperature);
    args.weights = want.data();
    generic.block_exp_sum(args);
    args.weights = got.data();
    kernels().block_exp_sum(args);
    EXPECT_TRUE(want == got) << temperature;
  }
}

int64_t units(float weight) { return std::llrint(std::ldexp(double{weight}, 42)); }

TEST_P(LogitBlocks, SumsAreExact) {
  for (const int64_t n : kLogitBlocksSizes)
    for (const float temperature : {0.1f, 0.7f, 1.0f, 3.0f, 1e30f}) {
      const std::vector<float> x = logits(n);
      std::vector<float> weights(n);
      std::vector<int64_t> sums(num_logit_blocks(n) + 1, 77), want(sums);
      BlockExpSumArgs args = weights_of(x, *std::max_element(x.begin(), x.end()), temperature);
      args.weights = weights.data();
      args.sums = sums.data();
      kernels().block_exp_sum(args);
      for (int64_t b = 0; b < num_logit_blocks(n); ++b) want[b] = 0;
      for (int64_t i = 0; i < n; ++i) want[i / kLogitBlock] += units(weights[i]);
      EXPECT_EQ(sums, want) << n << " at " << temperature;
    }
}

TEST_P(LogitBlocks, NearSumsAreWithinTheirError) {
  for (const int64_t n : kLogitBlocksSizes)
    for (const float temperature : {1e-30f, 0.01f, 0.7f, 3.0f, 1e5f})
      for (const float offset : {0.0f, 3000.0f}) {
        std::vector<float> x = logits(n);
        for (float& v : x) v += offset;
        const float scale = 1 / temperature;
        std::vector<float> got(num_logit_blocks(n) + 1, 77.0f), top(got);
        EXPECT_TRUE(kernels().block_max({x.data(), n, top.data(), scale, got.data()}));
        for (int64_t b = 0; b < num_logit_blocks(n); ++b) {
          const int64_t end = std::min(n, (b + 1) * kLogitBlock);
          EXPECT_EQ(top[b], *std::max_element(x.begin() + b * kLogitBlock, x.begin() + end));
          double want = 0;
          for (int64_t i = b * kLogitBlock; i < end; ++i)
            want += std::exp((double{x[i]} - double{top[b]}) * double{scale});
          EXPECT_NEAR(got[b], want, want * kNearSumError) << n << ", " << temperature << ", " << offset;
        }
        EXPECT_EQ(got.back(), 77.0f);
      }
  // A block without any token has no sum.
  const std::vector<float> nothing(kLogitBlock, -kInf);
  float top = 0, sum = -1;
  EXPECT_TRUE(kernels().block_max({nothing.data(), kLogitBlock, &top, 1, &sum}));
  EXPECT_EQ(top, -kInf);
  EXPECT_NEAR(sum, 0, 1e-30);
}

TEST_P(LogitBlocks, ListsWhatLiesBetween) {
  for (const int64_t n : kLogitBlocksSizes) {
    const std::vector<float> x = logits(n);
    std::vector<float> weights(n);
    const float lowest = std::numeric_limits<float>::lowest();
    for (const auto& [low, high] : std::vector<std::pair<float, float>>{
             {lowest, kInf}, {lowest, -2.5f}, {-1.0f, 2.0f}, {x[0], x[n - 1]}, {5.0f, kInf}, {1.0f, 1.0f}}) {
      std::vector<float> between(n + kLogitBlock, 77.0f), want_between;
      std::vector<int32_t> places(n + kLogitBlock, 77), want_places;
      std::vector<int64_t> sums(num_logit_blocks(n)), want(sums);
      int64_t listed = -1;
      BlockExpSumArgs args = weights_of(x, 6, 1);
      args.weights = weights.data();
      args.sums = sums.data();
      args.low = low;
      args.high = high;
      args.between = between.data();
      args.places = places.data();
      args.num_between = &listed;
      kernels().block_exp_sum(args);
      for (int64_t i = 0; i < n; ++i) {
        if (x[i] >= high) want[i / kLogitBlock] += units(weights[i]);
        if (x[i] < low || x[i] >= high) continue;
        want_between.push_back(x[i]);
        want_places.push_back(static_cast<int32_t>(i));
      }
      ASSERT_EQ(listed, std::ssize(want_between)) << n << ", " << low << " to " << high;
      between.resize(listed);
      places.resize(listed);
      EXPECT_EQ(between, want_between);
      EXPECT_EQ(places, want_places);
      EXPECT_EQ(sums, want) << n << ", " << low << " to " << high;
      // With the sum of all, and where the tokens of each block begin.
      std::vector<int32_t> begins(num_logit_blocks(n) + 1, 77), want_begins(begins.size());
      for (size_t b = 0; b < begins.size(); ++b)
        want_begins[b] = static_cast<int32_t>(
            std::lower_bound(want_places.begin(), want_places.end(), b * kLogitBlock) - want_places.begin());
      int64_t total = -1, want_total = 0;
      for (int64_t i = 0; i < n; ++i) want_total += units(weights[i]);
      between.assign(n + kLogitBlock, 77.0f);
      sums.assign(sums.size(), -1);
      listed = -1;
      BlockExpSumArgs with_total = args;
      with_total.weights = nullptr;
      with_total.places = nullptr;
      with_total.between = between.data();
      with_total.total = &total;
      with_total.begins = begins.data();
      kernels().block_exp_sum(with_total);
      EXPECT_EQ(total, want_total);
      EXPECT_EQ(begins, want_begins);
      EXPECT_EQ(sums, want);
      ASSERT_EQ(listed, std::ssize(want_between));
      between.resize(listed);
      EXPECT_EQ(between, want_between);
      // The list alone.
      between.assign(n + kLogitBlock, 77.0f);
      places.assign(n + kLogitBlock, 77);
      args.weights = nullptr;
      args.sums = nullptr;
      args.between = between.data();
      args.places = places.data();
      listed = -1;
      kernels().block_exp_sum(args);
      ASSERT_EQ(listed, std::ssize(want_between));
      between.resize(listed);
      places.resize(listed);
      EXPECT_EQ(between, want_between);
      EXPECT_EQ(places, want_places);
    }
  }
}

REDLINE_INSTANTIATE_PER_ISA(LogitBlocks);

}  // namespace
}  // namespace redline
