#include "llm/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "llm/sampler_draws.h"
#include "support/special_values.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

/// The distribution that SamplingOptions promise, in double and with a plain sort.
std::vector<double> sampler_reference(const std::vector<float>& logits, const SamplingOptions& o,
                                      const std::vector<int32_t>& seen) {
  const size_t n = logits.size();
  std::vector<double> l(logits.begin(), logits.end());
  std::vector<bool> done(n);
  for (int32_t t : seen) {
    if (done[size_t(t)]) continue;
    done[size_t(t)] = true;
    l[size_t(t)] = l[size_t(t)] > 0 ? l[size_t(t)] / o.repetition_penalty : l[size_t(t)] * o.repetition_penalty;
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return l[a] > l[b]; });
  std::vector<double> p(n, 0);
  if (o.temperature == 0) {
    p[order[0]] = 1;
    return p;
  }
  size_t kept = o.top_k > 0 ? std::min(n, size_t(o.top_k)) : n;
  double total = 0;
  for (size_t i = 0; i < kept; ++i) total += p[order[i]] = std::exp((l[order[i]] - l[order[0]]) / o.temperature);
  double sum = 0;
  if (o.top_p < 1) {
    for (size_t i = 0; i < kept; ++i) {
      if (sum >= o.top_p * total) p[order[i]] = 0;
      sum += p[order[i]];
    }
  }
  for (double& x : p)
    if (x < o.min_p) x = 0;
  total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

// kat_vectors of Random123, the authors' own code: philox4x32, 10 rounds.
TEST(Philox, KnownAnswers) {
  using Counter = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformLiesInRangeAndIsEven) {
  std::vector<int> bins(64);
  const int draws = 64000;
  for (int i = 0; i < draws; ++i) {
    const double u = uniform_at(7, uint64_t(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++bins[size_t(u * 64)];
  }
  double chi = 0;
  for (int n : bins) chi += (n - 1000.0) * (n - 1000.0) / 1000.0;
  EXPECT_LT(chi, 63 + 5 * std::sqrt(2 * 63));  // mean and spread of chi-square with 63 degrees of freedom
  EXPECT_NE(uniform_at(7, 1), uniform_at(8, 1));
  EXPECT_NE(uniform_at(7, 1), uniform_at(7, (uint64_t{1} << 32) + 1));  // the high half of each counts
  EXPECT_NE(uniform_at(7, 1), uniform_at((uint64_t{1} << 32) + 7, 1));
}

struct SamplerCase {
  const char* name;
  SamplingOptions options;
};
class SamplerDistribution : public ::testing::TestWithParam<SamplerCase> {};

TEST_P(SamplerDistribution, MatchesTheExactProbabilities) {
  SamplingOptions o = GetParam().options;
  o.seed = 12345;
  for (const size_t vocab : {1, 2, 17, 64}) {
    const std::vector<float> logits = random_logits(vocab, uint32_t(vocab));
    const std::vector<int32_t> seen = {0, int32_t(vocab) - 1, 0};
    const std::vector<double> p = sampler_reference(logits, o, seen);
    Sampler sampler = make_sampler(o, vocab);
    sampler.accept(seen);
    const int draws = 100000;
    std::vector<int> count(vocab);
    for (int i = 0; i < draws; ++i) {
      auto token = sampler.sample(logits, i);
      ASSERT_TRUE(token.ok()) << token.status().to_string();
      ++count[size_t(*token)];
    }
    SCOPED_TRACE(::testing::Message() << "vocabulary " << vocab);
    expect_distribution(count, p, draws);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SamplerDistribution,
    ::testing::Values(
        SamplerCase{"plain", {.temperature = 1.0f}}, SamplerCase{"cold", {.temperature = 0.4f}},
        SamplerCase{"hot", {.temperature = 3.0f}}, SamplerCase{"top_k", {.temperature = 1.0f, .top_k = 5}},
        SamplerCase{"top_k_1", {.temperature = 1.0f, .top_k = 1}},
        SamplerCase{"top_p", {.temperature = 1.0f, .top_p = 0.8f}},
        SamplerCase{"top_p_tiny", {.temperature = 1.0f, .top_p = 1e-6f}},
        SamplerCase{"min_p", {.temperature = 1.0f, .min_p = 0.1f}},
        SamplerCase{"min_p_1", {.temperature = 1.0f, .min_p = 1.0f}},
        SamplerCase{"penalty", {.temperature = 1.0f, .repetition_penalty = 1.5f}},
        SamplerCase{"all",
                    {.temperature = 0.9f, .top_p = 0.9f, .top_k = 12, .min_p = 0.03f, .repetition_penalty = 1.2f}}),
    [](const auto& info) { return info.param.name; });

TEST(Sampler, KeepsTheSameSetAsASortWould) {
  // Every token that the sampler_reference keeps is drawn by some position, none that it drops is: large vocabulary,
  // many cuts.
  for (const float top_p : {0.05f, 0.3f, 0.7f, 0.95f, 0.999f}) {
    for (const int64_t top_k : {0, 1, 40, 999, 1000, 5000}) {
      SamplingOptions o{.temperature = 1.0f, .top_p = top_p, .top_k = top_k};
      const std::vector<float> logits = random_logits(1000, 3, 1.0f);
      const std::vector<double> p = sampler_reference(logits, o, {});
      Sampler sampler = make_sampler(o, logits.size());
      for (int i = 0; i < 2000; ++i) {
        auto token = sampler.sample(logits, i);
        ASSERT_TRUE(token.ok());
        ASSERT_GT(p[size_t(*token)], 0) << "top_p " << top_p << " top_k " << top_k << " position " << i;
      }
    }
  }
}

TEST(Sampler, GreedyTakesTheLowestOfTies) {
  Sampler sampler = make_sampler({.temperature = 0}, 5);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2, 3, 3}, 0).value(), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInf, -kInf, -kInf, -2, -kInf}, 0).value(), 3);
}

TEST(Sampler, CutsThroughTiesByLowerId) {
  const std::vector<float> logits(8, 1.0f);
  Sampler top_k = make_sampler({.temperature = 1, .top_k = 3}, 8);
  Sampler top_p = make_sampler({.temperature = 1, .top_p = 0.5f}, 8);
  std::vector<int> k(8), p(8);
  for (int i = 0; i < 1000; ++i) {
    ++k[size_t(top_k.sample(logits, i).value())];
    ++p[size_t(top_p.sample(logits, i).value())];
  }
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(k[i] > 0, i < 3) << i;
    EXPECT_EQ(p[i] > 0, i < 4) << i;
  }
}

TEST(Sampler, PenaltyIsThatOfTheRule) {
  Sampler sampler = make_sampler({.temperature = 0, .repetition_penalty = 2}, 3);
  const std::vector<float> logits = {4, 3, -1};
  EXPECT_EQ(sampler.sample(logits, 0).value(), 0);
  sampler.accept(0);  // 4 / 2 = 2 is now below 3
  EXPECT_EQ(sampler.sample(logits, 1).value(), 1);
  sampler.accept(0);  // a second time changes nothing
  sampler.accept(1);
  EXPECT_EQ(sampler.sample(logits, 2).value(), 0);  // 2 against 1.5
  sampler.accept(-1);
  sampler.accept(99);  // outside the vocabulary: ignored
  const std::vector<float> negative = {-1.5f, -2, -2.5f};
  EXPECT_EQ(sampler.sample(negative, 3).value(), 2);  // -3, -4, -2.5
}

TEST(Sampler, SameSeedSameTokens) {
  const SamplingOptions o{.temperature = 1, .top_p = 0.9f, .top_k = 20, .seed = 99};
  const std::vector<float> logits = random_logits(500, 1);
  Sampler a = make_sampler(o, 500), b = make_sampler(o, 500);
  for (int i = 0; i < 50; ++i) (void)a.sample(logits, 1000 + i).value();  // earlier draws leave no trace
  SamplingOptions other = o;
  other.seed = 100;
  Sampler c = make_sampler(other, 500);
  int differences = 0;
  for (int i = 0; i < 200; ++i) {
    const int32_t token = a.sample(logits, i).value();
    EXPECT_EQ(token, b.sample(logits, i).value());
    differences += token != c.sample(logits, i).value();
  }
  EXPECT_GT(differences, 100);
}

TEST(Sampler, ExtremeTemperaturesAndLogits) {
  Sampler cold = make_sampler({.temperature = 1e-30f, .top_p = 0.5f, .top_k = 2}, 3);
  EXPECT_EQ(cold.sample(std::vector<float>{3e38f, -3e38f, 1}, 0).value(), 0);
  Sampler forbidden = make_sampler({.temperature = 5, .top_p = 0.99f, .top_k = 3}, 4);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(forbidden.sample(std::vector<float>{-kInf, 0, -kInf, -kInf}, i).value(), 1);
}

TEST(Sampler, BrokenLogitsAreErrors) {
  for (const float temperature : {0.0f, 1.0f}) {
    Sampler sampler = make_sampler({.temperature = temperature}, 3);
    auto nan = sampler.sample(std::vector<float>{0, NAN, 1}, 42);
    ASSERT_FALSE(nan.ok());
    EXPECT_EQ(nan.status().code(), Code::internal);
    EXPECT_THAT(nan.status().message(), HasSubstr("position 42: the logit of token 1 is NaN"));
    auto inf = sampler.sample(std::vector<float>{0, 1, kInf}, 7);
    EXPECT_THAT(inf.status().message(), HasSubstr("position 7: the logit of token 2 is +inf"));
    auto none = sampler.sample(std::vector<float>{-kInf, -kInf, -kInf}, 5);
    EXPECT_EQ(none.status().code(), Code::internal);
    EXPECT_THAT(none.status().message(), HasSubstr("every logit is -inf"));
    auto wrong = sampler.sample(std::vector<float>{1, 2}, 0);
    EXPECT_EQ(wrong.status().code(), Code::invalid_argument);
    EXPECT_THAT(wrong.status().message(), HasSubstr("2 logits for a vocabulary of 3"));
  }
}

TEST(Sampler, OptionsOutsideTheirRangeAreNamed) {
  const auto message = [](const SamplingOptions& o) {
    auto sampler = Sampler::create(o, 10);
    EXPECT_EQ(sampler.status().code(), Code::invalid_argument);
    return sampler.status().message();
  };
  EXPECT_THAT(message({.temperature = -1}), HasSubstr("temperature is -1"));
  EXPECT_THAT(message({.temperature = NAN}), HasSubstr("temperature is nan"));
  EXPECT_THAT(message({.temperature = kInf}), HasSubstr("temperature is inf"));
  EXPECT_THAT(message({.top_k = -1}), HasSubstr("top_k is -1"));
  EXPECT_THAT(message({.top_p = 0}), HasSubstr("top_p is 0"));
  EXPECT_THAT(message({.top_p = 1.5f}), HasSubstr("top_p is 1.5; allowed: more than 0, up to 1"));
  EXPECT_THAT(message({.min_p = -0.1f}), HasSubstr("min_p is -0.1"));
  EXPECT_THAT(message({.repetition_penalty = 0}), HasSubstr("repetition_penalty is 0"));
  EXPECT_EQ(Sampler::create({}, 0).status().code(), Code::invalid_argument);
}

TEST(Sampler, LogprobsAreOfTheWholeDistribution) {
  const std::vector<float> logits = random_logits(100, 5);
  double sum = 0;
  for (float x : logits) sum += std::exp(double(x));
  Sampler sampler = make_sampler({.temperature = 0.1f, .top_k = 1, .repetition_penalty = 3}, 100);
  sampler.accept(4);
  std::vector<TokenLogprob> top;
  auto logprob = sampler.logprobs(logits, 4, 3, top);
  ASSERT_TRUE(logprob.ok());
  // exp and the division round once each in float32: 1e-6 of a value that is below 10.
  EXPECT_NEAR(*logprob, logits[4] - std::log(sum), 1e-5);
  std::vector<int32_t> order(100);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
  ASSERT_EQ(top.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(top[i].id, order[i]);
    EXPECT_NEAR(top[i].logprob, logits[size_t(order[i])] - std::log(sum), 1e-5);
  }
  ASSERT_TRUE(sampler.logprobs(logits, 0, 1000, top).ok());
  EXPECT_EQ(top.size(), 100u);
  ASSERT_TRUE(sampler.logprobs(logits, 0, 0, top).ok());
  EXPECT_TRUE(top.empty());
  EXPECT_EQ(sampler.logprobs(logits, 100, 0, top).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace redline
