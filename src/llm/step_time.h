// Estimates the time of a step from earlier steps, to limit the prompt tokens of a step that also decodes.
#pragma once

#include <cstdint>
#include <limits>

namespace redline {

/// A model of step times. A step that only samples takes a + b * rows seconds: a line fitted to earlier steps, of which
/// recent ones weigh more, because caches fill up and other programs come and go. The time of a step with prompts
/// beyond this line is attributed to the prompts. The two are fitted separately: if every step has prompts, a joint fit
/// is ill-conditioned and attributes prompt time to sampling.
class StepTime {
 public:
  /// Records that a step with `rows` sampling sequences and `prompt_tokens` tokens of prompts took `seconds`.
  void add(int64_t rows, int64_t prompt_tokens, double seconds);
  /// Returns the number of prompt tokens that a step with `rows` sampled tokens may have, so that it takes at most
  /// `ratio` times as long as a step that only samples `all_rows` rows, the number after the prompts are complete.
  /// Returns at least kMin, so that prompts always progress; kUnknown until there were steps of both kinds. Sometimes
  /// returns 1, to measure the time of sampling again.
  int64_t prompt_tokens_within(double ratio, int64_t rows, int64_t all_rows) const;

  static constexpr int64_t kMin = 4;
  /// Number of tokens small enough not to delay running requests noticeably, and large enough to measure.
  static constexpr int64_t kUnknown = 16;
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

 private:
  double sampling_seconds(int64_t rows) const;
  void add_sampling(int64_t rows, double seconds);

  // Statistics of steps without prompts, weighted by age: sum of the weights, means, sums of squares and products
  // around them.
  double weight_ = 0, mean_rows_ = 0, mean_seconds_ = 0, rows_squared_ = 0, rows_seconds_ = 0;
  double row_seconds_ = 0;    ///< b
  double token_seconds_ = 0;  ///< time of a prompt token; 0: unknown
  int64_t samplings_ = 0;     ///< number of steps without prompts so far
  int64_t mixed_ = 0;         ///< number of steps with prompts since the last one without
};

}  // namespace redline
