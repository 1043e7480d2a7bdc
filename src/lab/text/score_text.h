// Measures how well a language model predicts a text, alone or compared with another model, and which of several
// answers it finds most likely.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "redline/text.h"

namespace redline::lab {

/// The mean of numbers, which are added in a fixed order, and its standard error.
struct MeanOf {
  int64_t count = 0;
  double sum = 0, squares = 0;

  void add(double value) {
    ++count;
    sum += value;
    squares += value * value;
  }
  double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
  double error() const {
    const double n = static_cast<double>(count), variance = squares / n - mean() * mean();
    return count > 1 ? std::sqrt(std::max(variance, 0.0) / (n - 1)) : 0;
  }
};

struct TextScores {
  MeanOf nats;  ///< -ln p of each scored token
  // The following members are set if there is a base model. Its distribution counts as the true one.
  MeanOf base_nats;
  MeanOf divergence;                ///< KL(base || model) of each distribution, in nats
  MeanOf same_top;                  ///< 1 if both models have the same most likely token
  MeanOf probability_change;        ///< change of the probability of the text's tokens, model - base
  std::vector<double> divergences;  ///< sorted

  /// Returns the divergence that a share `q` of the positions does not exceed.
  double divergence_quantile(double q) const;
};

struct WindowOptions {
  int64_t window = 512;      ///< tokens of a window; at least 4
  int64_t windows = 0;       ///< maximum number of windows; 0: all complete windows of the text
  int32_t first_token = -1;  ///< replaces the first token of each window; -1: no replacement
};

/// Scores the second half of each window, each token given all earlier ones of the window: llama-perplexity's method.
/// `base` may be nullptr; its vocabulary is that of `model`. `on_window` returns false to end (cancelled).
Result<TextScores> score_windows(TextEngine& model, TextEngine* base, std::span<const int32_t> tokens,
                                 const WindowOptions& options, const std::function<bool()>& on_window);

struct Question {
  std::string prompt;
  std::vector<std::string> choices;
  size_t answer = 0;  ///< index of the right choice
};
/// Reads questions from JSON, a list or one object per line: {"question" (or "prompt", "ctx", "query"): text, "choices"
/// (or "endings"): list of texts or {"text": list, "label": list}, "answer" (or "label", "gold", "answerKey"): index,
/// label or letter}. invalid_argument: the message gives the number of the question.
Result<std::vector<Question>> read_questions(std::string_view text);

struct ChoiceScores {
  MeanOf right;             ///< 1 if the choice with the highest probability is the right one
  MeanOf right_normalized;  ///< 1 if the choice with the highest probability per byte is the right one
  std::vector<size_t> chosen;
};
/// Scores choices as in lm-evaluation-harness: the tokens of a choice after the prompt and a space.
Result<ChoiceScores> score_choices(TextEngine& model, const std::vector<Question>& questions,
                                   const std::function<bool()>& on_question);

}  // namespace redline::lab
