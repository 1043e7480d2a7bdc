// The interface of drafters, which propose tokens that may follow a text; one step of the model then verifies them.
// Each file in drafters/ defines one row, which the build finds: prompt_lookup.cc defines kPromptLookupDrafter.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline {

/// Proposed continuations of a text: a chain, or a tree whose branches share their beginnings.
struct Draft {
  static constexpr size_t kMaxNodes = 64;
  std::vector<int32_t> tokens;
  /// [tokens]: the index of the token that comes before, smaller than the own index; -1: the last token of the text.
  /// Empty: a chain, in which every token follows the one before it.
  std::vector<int32_t> parents;

  bool is_chain() const;
  void clear() {
    tokens.clear();
    parents.clear();
  }
};

/// Drafts the tokens of one sequence. Not thread-safe.
///
/// A drafter knows a text: the tokens that observe() has appended. propose() may add the state of drafted tokens, for
/// example keys and values of a draft model. Before the next proposal roll_back() drops the state of the tokens that
/// were not accepted, and observe() appends the tokens that were.
class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Writes at most `max_tokens` tokens to `draft`, which is empty. An empty draft is allowed at any time. An error
  /// ends the drafting of the request, but not the request.
  virtual Status propose(int64_t max_tokens, Draft& draft) = 0;
  /// Appends verified tokens to the text: those of the prompt, then those of each step. `num_accepted`: how many of the
  /// first tokens are those of the last draft. A token below 0 is not a token of the vocabulary, but a row of
  /// embeddings.
  virtual void observe(std::span<const int32_t> tokens, int64_t num_accepted) = 0;
  /// Shortens text and draft to `length` tokens. Without effect if there are no more.
  virtual void roll_back(int64_t length) = 0;
};

/// Arguments of DrafterRow::make.
struct DrafterContext {
  int64_t vocab_size = 0;
};

/// A drafter of the registry.
struct DrafterRow {
  std::string_view name;  ///< as in TextEngineOptions::speculate
  std::unique_ptr<Drafter> (*make)(const DrafterContext& context);
};

using MakeDrafter = std::function<std::unique_ptr<Drafter>()>;

/// Returns a function that makes the drafter of a request; an empty function for "none".
/// invalid_argument: there is no drafter of this name (the message lists the names).
Result<MakeDrafter> drafter_from_name(std::string_view name, const DrafterContext& context);

}  // namespace redline
