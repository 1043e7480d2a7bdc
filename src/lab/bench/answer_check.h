// Checks a model's logits against a reference before the model is timed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/json.h"
#include "redline/text.h"

namespace redline::lab {

/// Number of parameters of the largest model that is checked with the interpreter, which takes at most ten seconds at a
/// few million multiply-adds per second.
inline constexpr int64_t kInterpretedParameters = 30'000'000;

struct AnswerCheck {
  /// the reference: "interpreter", "generic f32" (or another type that converts the weights), "token by token"; "":
  /// there was no check
  std::string against;
  std::string note;                      ///< why no better reference was used
  int64_t tokens = 0;                    ///< tokens of the prompt whose last logits were compared
  double relative_error = 0, bound = 0;  ///< maximum difference of the logits relative to the maximum logit
};

/// Returns the logits after the last of `tokens`, computed by the generic kernels in a separate process, which shares
/// as little code as possible with the measured path. `dtype`: f32, or the type that the weights are converted to.
/// cancelled: `limit_seconds` have passed, or `is_cancelled` returned true. Other errors have the message of that
/// process.
Result<std::vector<float>> generic_logits(const std::string& path, const std::vector<int32_t>& tokens,
                                          std::string_view dtype, int threads, double limit_seconds,
                                          const std::function<bool()>& is_cancelled);

/// Compares the engine's logits of a short prompt with those of the interpreter (models up to 30 million parameters),
/// of generic float32 kernels (larger models), or else with its own logits token by token.
/// `generic`: result of generic_logits(), computed before the engine allocated its memory; empty: not available, for
/// the reason in `why_not`.
/// internal: they differ by more than rounding explains.
Result<AnswerCheck> check_answer(TextEngine& engine, const TextEngineOptions& options, const std::string& path,
                                 const std::vector<float>& generic, const std::string& why_not);
/// Returns the tokens of the prompt for the check.
std::vector<int32_t> check_tokens(int64_t vocab_size, int64_t context);

inline Json check_json(const AnswerCheck& check) {
  if (check.against.empty()) return nullptr;
  Json json = {{"against", check.against},
               {"tokens", check.tokens},
               {"relative_error", check.relative_error},
               {"bound", check.bound}};
  if (!check.note.empty()) json["note"] = check.note;
  return json;
}

}  // namespace redline::lab
