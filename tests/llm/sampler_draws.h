// Shared parts of the tests of samplers: samplers, random rows of logits, and draws against exact probabilities.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "llm/sampler.h"

namespace redline {

inline std::vector<float> random_logits(size_t n, uint32_t seed, float scale = 2.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(random);
  return logits;
}

inline Sampler make_sampler(const SamplingOptions& options, size_t vocab,
                            std::shared_ptr<const TokenTrie> vocabulary = nullptr) {
  auto sampler = Sampler::create(options, static_cast<int64_t>(vocab), std::move(vocabulary));
  EXPECT_TRUE(sampler.ok()) << sampler.status().to_string();
  return std::move(sampler).value();
}

/// Chi-square of `draws` tokens, count[i] of which are token i, against probabilities p.
inline void expect_distribution(const std::vector<int>& count, const std::vector<double>& p, int draws) {
  // Bins that expect fewer than 5 draws are pooled, as the chi-square approximation wants.
  double chi = 0, rest_expected = 0, rest = 0;
  int degrees = -1;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(count[i], 0) << "token " << i << " is removed";
      continue;
    }
    const double expected = p[i] * draws;
    if (expected < 5) {
      rest_expected += expected;
      rest += count[i];
      continue;
    }
    chi += (count[i] - expected) * (count[i] - expected) / expected;
    ++degrees;
  }
  if (rest_expected > 0.5) {
    chi += (rest - rest_expected) * (rest - rest_expected) / rest_expected;
    ++degrees;
  }
  // Draws are fixed by the seed, so this cannot flicker; five spreads above the mean would be a one in a million event.
  EXPECT_LE(chi, degrees + 5 * std::sqrt(2.0 * std::max(degrees, 1)));
}

}  // namespace redline
