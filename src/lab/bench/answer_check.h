// The answer is checked before anything is timed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/json.h"
#include "redline/engine.h"

namespace redline::lab {

/// Up to here the interpreter is the reference. It does a few million multiply-adds a second per token: ten seconds at
/// most.
inline constexpr int64_t kInterpretedParameters = 30'000'000;

struct AnswerCheck {
  std::string against;                   ///< "interpreter", "generic f32", "token by token"; "" when there was no check
  std::string note;                      ///< why it was not a better one
  int64_t tokens = 0;                    ///< of the prompt whose last logits were compared
  double relative_error = 0, bound = 0;  ///< largest difference of a logit over the largest logit
};

/// Logits after the last of `tokens` from a way through the engine that shares as little as can be with the fast one:
/// the kernels of the generic instruction set in float32, in a process of their own, for at most `limit_seconds`.
/// cancelled: the time is over, or `is_cancelled`. Other errors: what that process said.
Result<std::vector<float>> generic_logits(const std::string& path, const std::vector<int32_t>& tokens, int threads,
                                          double limit_seconds, const std::function<bool()>& is_cancelled);

/// Compares the engine's logits of a short prompt with those of the interpreter (models up to 30 million parameters),
/// of generic float32 kernels (larger ones), or, where that is not possible, with its own token by token.
/// `generic`: those logits, when they were made before the engine took its memory; empty: none, for `why_not`.
/// internal: they differ by more than rounding explains.
Result<AnswerCheck> check_answer(Engine& engine, const EngineOptions& options, const std::string& path,
                                 const std::vector<float>& generic, const std::string& why_not);
/// The prompt that is checked.
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
