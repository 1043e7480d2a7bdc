// block_max and block_exp_sum: every instruction set against float64.
#include "kernels/cpu/logit_blocks.h"

#include <algorithm>

#include "support/isa_test.h"

namespace redline {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
// Around one and two blocks, around vector widths in the last one, a prime, a real vocabulary.
const int64_t kSizes[] = {1, 2, 15, 16, 17, 127, 128, 129, 144, 255, 256, 257, 1009, 32000};

using LogitBlocks = IsaTest;

TEST_P(LogitBlocks, MaximaAreExact) {
  for (const int64_t n : kSizes) {
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

TEST_P(LogitBlocks, SumsAreWithinTheBound) {
  for (const int64_t n : kSizes)
    for (const float temperature : {0.1f, 0.7f, 1.0f, 3.0f}) {
      std::vector<float> x = test_values(n, n, 6.0f);
      if (n > 3) x[3] = -kInf;
      const float best = *std::max_element(x.begin(), x.end());
      for (const float limit : {kInf, best, 1.0f, -100.0f}) {
        std::vector<float> sums(num_logit_blocks(n) + 1, 77.0f);
        kernels().block_exp_sum({x.data(), n, best, 1 / temperature, limit, sums.data()});
        for (int64_t b = 0; b < num_logit_blocks(n); ++b) {
          double sum = 0, error = kLogitBlock * 0x1p-126;  // of terms that are smaller
          for (int64_t i = b * kLogitBlock; i < std::min(n, (b + 1) * kLogitBlock); ++i) {
            if (x[i] >= limit) continue;
            const double d = (double{x[i]} - best) / temperature, term = std::exp(d);
            sum += term;
            if (term > 0) error += term * (5 * std::abs(d) + 24) * kRounding;  // and 1 / temperature
          }
          EXPECT_NEAR(sums[b], sum, error) << n << ", block " << b << ", limit " << limit;
        }
        EXPECT_EQ(sums.back(), 77.0f);
      }
    }
}

REDLINE_INSTANTIATE_PER_ISA(LogitBlocks);

}  // namespace
}  // namespace redline
