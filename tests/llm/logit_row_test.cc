// The shortcuts of LogitRow against Candidates with the whole vocabulary: the same tokens, to the last bit.
#include "llm/logit_row.h"
#include "support/special_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace redline {
namespace {

struct Row {
  const char* name;
  float spread;     ///< of a normal distribution
  size_t peaks;     ///< logits that stand out
  double excluded;  ///< share of tokens at -inf
};
constexpr Row kRows[] = {{"peaked", 2, 40, 0}, {"one_peak", 1, 1, 0}, {"wide", 6, 0, 0},
                         {"flat", 0.5f, 0, 0}, {"equal", 0, 0, 0},    {"masked", 2, 40, 0.9},
                         {"few", 2, 0, 0.999}, {"levels", -3, 0, 0},  {"zeros", -0.3f, 0, 0}};

std::vector<float> logit_row_logits_of(const Row& row, size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, std::abs(row.spread) + 1e-9f);
  std::vector<float> logits(n);
  for (float& x : logits) x = row.spread == 0 ? 1.5f : normal(random);
  if (row.spread < 0)
    for (float& x : logits) x = std::round(x);  // many ties
  for (size_t i = 0; i < row.peaks; ++i) logits[random() % n] = 8 + 3 * normal(random);
  std::bernoulli_distribution is_excluded(row.excluded);
  for (size_t i = 1; i < n; ++i)
    if (is_excluded(random)) logits[i] = -kInf;
  return logits;
}

std::vector<int32_t> logit_row_ids(const Candidates& candidates) {
  std::vector<int32_t> logit_row_ids;
  for (const Candidate& c : candidates.tokens()) logit_row_ids.push_back(c.id);
  return logit_row_ids;
}

class LogitRowTest : public ::testing::TestWithParam<Row> {
 protected:
  static constexpr size_t kVocab = 50003;  // no whole number of blocks
  LogitRowTest() : row_(*cpu_kernels().value(), kVocab) { out_.reserve(kVocab), all_.reserve(kVocab); }

  void scan(uint32_t seed) {
    logits_ = logit_row_logits_of(GetParam(), kVocab, seed);
    ASSERT_TRUE(row_.scan(logits_, 0).ok());
  }
  Candidates& all(float temperature) {
    row_.all(all_);
    all_.set_temperature(temperature);
    return all_;
  }
  /// The tokens and weights of `out_` are those of `all_`.
  void expect_same(const std::string& what) {
    ASSERT_EQ(logit_row_ids(out_), logit_row_ids(all_)) << what;
    const auto a = out_.weights(), b = all_.weights();
    ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin())) << what;
  }

  LogitRow row_;
  Candidates out_{*cpu_kernels().value()}, all_{*cpu_kernels().value()};
  std::vector<float> logits_;
};

TEST_P(LogitRowTest, FindsTheBest) {
  for (uint32_t seed = 0; seed < 3; ++seed) {
    scan(seed);
    EXPECT_EQ(row_.best_id(), std::max_element(logits_.begin(), logits_.end()) - logits_.begin());
  }
}

TEST_P(LogitRowTest, TopK) {
  for (uint32_t seed = 0; seed < 2; ++seed) {
    scan(seed);
    for (const int64_t k : {1, 2, 40, 100, 300, 341}) {
      ASSERT_TRUE(row_.top_k(k, 0.7f, out_));
      all(0.7f).keep_top_k(k);
      expect_same(fmt::format("k {}", k));
    }
    EXPECT_FALSE(row_.top_k(390, 0.7f, out_));  // there are 391 blocks
  }
}

TEST_P(LogitRowTest, TopPAndMinP) {
  int few = 0, many = 0;
  for (uint32_t seed = 0; seed < 2; ++seed) {
    scan(seed);
    for (const float temperature : {1e-30f, 0.5f, 1.0f, 1.7f, 1e5f}) {
      ASSERT_TRUE(row_.scan(logits_, 0, temperature).ok());
      for (const float p : {1e-6f, 0.3f, 0.9f, 0.95f, 0.999f, 0.9999999f}) {
        const std::string what = fmt::format("top_p {} at {}", p, temperature);
        all(temperature).keep_top_p(p);
        if (row_.top_p(p, temperature, out_)) {
          ++few;
          expect_same(what);
        } else {
          ++many;
          const Candidate last = row_.last_of_top_p(p, temperature);
          row_.keep_down_to(last, temperature, out_);
          expect_same(what);
          for (const double u : {0.0, 0.1, 0.5, 0.99, 1 - 0x1p-53})
            ASSERT_EQ(row_.draw_down_to(last, temperature, u), all_.draw(u).id) << what << ", " << u;
        }
        ASSERT_TRUE(row_.min_p(p, temperature, out_));
        all(temperature).keep_min_p(p);
        expect_same(fmt::format("min_p {} at {}", p, temperature));
      }
    }
  }
  if (std::string(GetParam().name) != "equal" && std::string(GetParam().name) != "zeros") {
    EXPECT_GT(few, 0);
  }
  if (std::string(GetParam().name) == "peaked") {
    EXPECT_GE(few, many);
  }
  if (std::string(GetParam().name) == "flat") {
    EXPECT_GE(many, few);
  }
}

TEST_P(LogitRowTest, Draw) {
  for (uint32_t seed = 0; seed < 2; ++seed) {
    scan(seed);
    for (const float temperature : {1e-30f, 0.5f, 1.0f, 1.7f, 1e30f}) {
      all(temperature);
      for (int i = 0; i < 40; ++i) {
        const double u = i == 39 ? 1 - 0x1p-53 : i / 40.0;
        ASSERT_EQ(row_.draw(temperature, u), all_.draw(u).id) << u << " at " << temperature;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LogitRowTest, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return info.param.name; });

// A row with top-p decides which sums of the next one are computed first, and nothing else.
TEST(LogitRow, TopPOfRowsOfDifferentKindsInTurn) {
  constexpr size_t kTokens = 40009;
  constexpr float kP = 0.9f;
  LogitRow row(*cpu_kernels().value(), kTokens);
  Candidates out(*cpu_kernels().value()), all(*cpu_kernels().value());
  out.reserve(kTokens), all.reserve(kTokens);
  uint32_t seed = 0;
  for (const char* kind : {"flat", "flat", "peaked", "flat", "one_peak", "flat", "few", "wide", "flat", "zeros"}) {
    const auto* const shape = std::find_if(std::begin(kRows), std::end(kRows),
                                           [&](const Row& r) { return std::string_view(r.name) == kind; });
    const std::vector<float> logits = logit_row_logits_of(*shape, kTokens, ++seed);
    ASSERT_TRUE(row.scan(logits, 0, 1).ok());
    row.all(all);
    all.keep_top_p(double{kP});
    if (row.top_p(kP, 1, out)) {
      ASSERT_EQ(logit_row_ids(out), logit_row_ids(all)) << kind;
      continue;
    }
    const Candidate last = row.last_of_top_p(kP, 1);
    for (int i = 0; i < 50; ++i) ASSERT_EQ(row.draw_down_to(last, 1, i / 50.0), all.draw(i / 50.0).id) << kind;
    row.keep_down_to(last, 1, out);
    ASSERT_EQ(logit_row_ids(out), logit_row_ids(all)) << kind;
  }
}

TEST(LogitRow, SmallVocabulariesAreLeftToTheCaller) {
  LogitRow row(*cpu_kernels().value(), 1000);
  Candidates out(*cpu_kernels().value());
  out.reserve(1000);
  const std::vector<float> logits(1000, 1.0f);
  ASSERT_TRUE(row.scan(logits, 0).ok());
  EXPECT_FALSE(row.top_k(3, 1, out));
  EXPECT_FALSE(row.top_p(0.5f, 1, out));
  EXPECT_FALSE(row.min_p(0.5f, 1, out));
  EXPECT_FALSE(row.has_blocks());
}

}  // namespace
}  // namespace redline
