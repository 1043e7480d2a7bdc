// How long steps take, learned from those that were run: for a limit on the prompt tokens of a step that also decodes.
#pragma once

#include <cstdint>
#include <limits>

namespace redline {

/// A step that only samples takes a + b * rows: a line through the steps before, of which old ones are forgotten, since
/// caches fill up and other programs come and go. What a step with prompts takes beyond that is theirs. The two are
/// kept apart: where every step has prompts, a joint fit is ill-conditioned and attributes prompt time to sampling.
class StepTime {
 public:
  /// A step with `rows` sequences that sample and `prompt_tokens` tokens of prompts took `seconds`.
  void add(int64_t rows, int64_t prompt_tokens, double seconds);
  /// Number of prompt tokens, in addition to `rows` sampled ones, with which a step takes at most `ratio` times as long
  /// as one that only samples `all_rows`, which are there when the prompts have been read; at least kMin, so that
  /// prompts are read to their end. kUnknown before there were steps of both kinds. Now and then 1, so that there is a
  /// step that shows the time of sampling.
  int64_t prompt_tokens_within(double ratio, int64_t rows, int64_t all_rows) const;

  static constexpr int64_t kMin = 4;
  /// Small enough not to delay running requests noticeably, large enough to measure.
  static constexpr int64_t kUnknown = 16;
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

 private:
  double sampling_seconds(int64_t rows) const;
  void add_sampling(int64_t rows, double seconds);

  // Statistics of steps without prompts, weighted by age: sum of the weights, means, sums of squares and products
  // around them.
  double weight_ = 0, mean_rows_ = 0, mean_seconds_ = 0, rows_squared_ = 0, rows_seconds_ = 0;
  double row_seconds_ = 0;    ///< b
  double token_seconds_ = 0;  ///< of a prompt token; 0: unknown
  int64_t samplings_ = 0;     ///< steps without prompts that were seen
  int64_t mixed_ = 0;         ///< steps with prompts since the last one without
};

}  // namespace redline
