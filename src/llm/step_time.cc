#include "llm/step_time.h"

#include <algorithm>
#include <cmath>

namespace redline {
namespace {

/// Features are about 1 in usual steps, so that their spreads are alike.
constexpr double kRows = 16, kPromptTokens = 128;
constexpr double kForget = 0.97, kFirstSpread = 100;
/// A step that another program held up counts as at most so many times as long as it was expected to be.
constexpr double kMaxSurprise = 2;
/// Steps of each kind before the fit is believed.
constexpr int64_t kEnough = 4;

}  // namespace

StepTime::Vector StepTime::features(int64_t rows, int64_t prompt_tokens) {
  return {1, static_cast<double>(rows) / kRows, static_cast<double>(prompt_tokens) / kPromptTokens};
}

void StepTime::add(int64_t rows, int64_t prompt_tokens, double seconds) {
  if (decodes_ + prompts_ == 0)
    for (size_t i = 0; i < 3; ++i) spread_[i][i] = kFirstSpread;
  const bool is_known = decodes_ >= kEnough && prompts_ >= kEnough;
  ++(prompt_tokens > 0 ? prompts_ : decodes_);
  const Vector x = features(rows, prompt_tokens);
  Vector p{};  // spread * x
  double expected = 0, weight = kForget;
  for (size_t i = 0; i < 3; ++i) {
    expected += times_[i] * x[i];
    for (size_t j = 0; j < 3; ++j) p[i] += spread_[i][j] * x[j];
  }
  for (size_t i = 0; i < 3; ++i) weight += x[i] * p[i];
  if (is_known && expected > 0) seconds = std::min(seconds, kMaxSurprise * expected);
  for (size_t i = 0; i < 3; ++i) times_[i] += p[i] / weight * (seconds - expected);
  // Forgetting widens what the latest steps say nothing of, without end unless it is bounded.
  const double largest = std::max({spread_[0][0], spread_[1][1], spread_[2][2]});
  const double forget = largest < kFirstSpread ? kForget : 1;
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 3; ++j) spread_[i][j] = (spread_[i][j] - p[i] * p[j] / weight) / forget;
}

int64_t StepTime::prompt_tokens_within(double ratio, int64_t rows) const {
  if (decodes_ < kEnough || prompts_ < kEnough) return kNoLimit;
  const Vector x = features(rows, 0);
  const double decode = times_[0] + times_[1] * x[1], per_token = times_[2] / kPromptTokens;
  if (per_token <= 0) return kNoLimit;
  const double tokens = (ratio - 1) * decode / per_token;
  if (tokens >= 1e9) return kNoLimit;
  return std::max(kLeast, static_cast<int64_t>(tokens));
}

}  // namespace redline
