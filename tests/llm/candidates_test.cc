// Top-p of large vocabularies, where ranges of logits replace the selection, against a plain sort.
#include "llm/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace redline {
namespace {

constexpr size_t kCandidatesVocab = 50003;

void expect_top_p(const char* name, const std::vector<float>& logits, float temperature) {
  Candidates all(*cpu_kernels().value());
  all.reserve(logits.size());
  for (const double p : {1e-6, 0.2, 0.9, 0.95, 0.999}) {
    all.clear();
    for (size_t i = 0; i < logits.size(); ++i) all.add({logits[i], static_cast<int32_t>(i)});
    all.set_temperature(temperature);
    const std::vector<float> weights(all.weights().begin(), all.weights().end());
    std::vector<Candidate> order(all.tokens().begin(), all.tokens().end());
    std::sort(order.begin(), order.end(), likelier);
    int64_t total = 0, sum = 0;
    for (const float w : weights) total += weight_units(w);
    std::vector<int32_t> want;
    for (const Candidate& token : order) {
      want.push_back(token.id);
      sum += weight_units(weights[static_cast<size_t>(token.id)]);
      if (static_cast<double>(sum) >= p * static_cast<double>(total)) break;
    }
    std::sort(want.begin(), want.end());
    all.keep_top_p(p);
    std::vector<int32_t> got;
    for (const Candidate& token : all.tokens()) got.push_back(token.id);
    EXPECT_TRUE(got == want) << name << ", top_p " << p << " at " << temperature << ": " << got.size() << " and "
                             << want.size() << " tokens";
  }
}

TEST(Candidates, TopPOfLargeVocabularies) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> flat(kCandidatesVocab), levels(kCandidatesVocab);
  for (float& x : flat) x = normal(random);
  for (float& x : levels) x = std::round(2 * normal(random));
  std::vector<float> peaked = flat, masked = flat, outlier = flat;
  for (int i = 0; i < 50; ++i) peaked[random() % kCandidatesVocab] = 12 + normal(random);
  for (size_t i = 0; i < kCandidatesVocab; ++i)
    if (random() % 10 != 0) masked[i] = -1e30f;
  outlier[7] = 80;
  for (const float temperature : {0.5f, 1.0f, 3.0f}) {
    expect_top_p("flat", flat, temperature);
    expect_top_p("levels", levels, temperature);
    expect_top_p("peaked", peaked, temperature);
    expect_top_p("masked", masked, temperature);
    expect_top_p("outlier", outlier, temperature);
    expect_top_p("equal", std::vector<float>(kCandidatesVocab, 1.5f), temperature);
  }
}

}  // namespace
}  // namespace redline
