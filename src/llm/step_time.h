// How long steps take, learned from those that were run: for a limit on the prompt tokens of a step that also decodes.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace redline {

/// Time is taken as a + b * sampled rows + c * prompt tokens, fitted by recursive least squares that forget old steps
/// (Ljung, System Identification, 1999, 11.2), since caches fill up and other programs come and go.
class StepTime {
 public:
  /// A step with `rows` sequences that sample and `prompt_tokens` tokens of prompts took `seconds`.
  void add(int64_t rows, int64_t prompt_tokens, double seconds);
  /// Prompt tokens beside `rows` sampled ones with which a step takes at most `ratio` times as long as without; at least
  /// kLeast. No limit while too little is known.
  int64_t prompt_tokens_within(double ratio, int64_t rows) const;

  static constexpr int64_t kLeast = 16;
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

 private:
  using Vector = std::array<double, 3>;
  static Vector features(int64_t rows, int64_t prompt_tokens);
  Vector times_{};                     ///< a, b, c of scaled features, in seconds
  std::array<Vector, 3> spread_{};     ///< inverse correlation of the features
  int64_t decodes_ = 0, prompts_ = 0;  ///< steps of each kind that were seen
};

}  // namespace redline
