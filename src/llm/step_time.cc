#include "llm/step_time.h"

#include <algorithm>
#include <cmath>

namespace redline {
namespace {

constexpr double kForget = 0.97;
constexpr double kFirst = 0.1;  ///< weight of the first step, which touches new memory
/// Rows squared that are added to the variance of rows: if all steps have about the same number of rows, the slope
/// hardly changes.
constexpr double kStiff = 4;
/// Cap on a measured step time relative to its prediction: limits the effect of outliers.
constexpr double kMaxSurprise = 2;
/// Minimum number of steps without prompts for a fit, and the number of others after which one more is run.
constexpr int64_t kEnough = 4, kProbeEarly = 2, kProbe = 32;
/// Weights of a larger and of a smaller time per token. Tokens late in a long prompt take longer than the first tokens
/// of another, so the estimate rises fast and falls slowly.
constexpr double kRise = 0.4, kFall = 0.03;
/// Share of a sampled row's time that a prompt token takes at least: both pass through the same weights, but a row also
/// has logits.
constexpr double kRowOfToken = 0.5;

}  // namespace

double StepTime::sampling_seconds(int64_t rows) const {
  return mean_seconds_ + row_seconds_ * (static_cast<double>(rows) - mean_rows_);
}

void StepTime::add_sampling(int64_t rows, double seconds) {
  const double expected = sampling_seconds(rows), x = static_cast<double>(rows);
  if (samplings_ >= kEnough && expected > 0) seconds = std::min(seconds, kMaxSurprise * expected);
  if (++samplings_ == 1) {
    mean_rows_ = x;
    mean_seconds_ = seconds;
    weight_ = kFirst;
    return;
  }
  weight_ = kForget * weight_ + 1;
  const double dx = x - mean_rows_, dy = seconds - mean_seconds_;
  mean_rows_ += dx / weight_;
  mean_seconds_ += dy / weight_;
  rows_squared_ = kForget * rows_squared_ + dx * (x - mean_rows_);
  rows_seconds_ = kForget * rows_seconds_ + dy * (x - mean_rows_);
  row_seconds_ = std::max(0.0, (rows_seconds_ + kStiff * row_seconds_) / (rows_squared_ + kStiff));
}

void StepTime::add(int64_t rows, int64_t prompt_tokens, double seconds) {
  if (prompt_tokens <= 1) {  // one prompt token is like one more row
    mixed_ = 0;
    return add_sampling(rows + prompt_tokens, seconds);
  }
  if (rows == 0) return;  // large chunks, whose tokens take a different time
  ++mixed_;
  if (samplings_ == 0) return;
  const double sampling = sampling_seconds(rows), tokens = static_cast<double>(prompt_tokens);
  if (token_seconds_ > 0) seconds = std::min(seconds, kMaxSurprise * (sampling + token_seconds_ * tokens));
  const double seen = std::max(0.0, seconds - sampling) / tokens;
  if (token_seconds_ == 0) token_seconds_ = seen;
  else token_seconds_ += (seen > token_seconds_ ? kRise : kFall) * (seen - token_seconds_);
}

int64_t StepTime::prompt_tokens_within(double ratio, int64_t rows, int64_t all_rows) const {
  if (mixed_ >= (samplings_ < kEnough ? kProbeEarly : kProbe)) return 1;
  const double sampling = sampling_seconds(rows);
  if (samplings_ == 0 || token_seconds_ <= 0 || sampling <= 0) return kUnknown;
  // If no step had this many rows, each further row is assumed to take at least about half of a prompt token's time.
  const double others = static_cast<double>(std::max<int64_t>(0, all_rows - rows));
  const double all = sampling + others * std::max(row_seconds_, kRowOfToken * token_seconds_);
  const double tokens = (ratio * all - sampling) / token_seconds_;
  if (tokens >= 1e9) return kNoLimit;
  return std::max(kMin, static_cast<int64_t>(tokens));
}

}  // namespace redline
