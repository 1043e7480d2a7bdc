// The output constraints of a text engine's requests: compiled once per text and vocabulary.
#pragma once

#include <list>
#include <memory>
#include <mutex>

#include "chat/chat_output.h"
#include "constraints/constraint.h"
#include "redline/text.h"

namespace redline {

/// How an answer with such a constraint is read.
ContentKind content_kind(OutputConstraint::Kind kind);

/// Thread-safe. The trie of the vocabulary is built with the first constraint.
class OutputConstraints {
 public:
  /// `tokenizer` must outlive this object; null: constraints are errors. `max_bytes`: of the cached ones' states, which
  /// they have computed, besides the latest.
  OutputConstraints(const Tokenizer* tokenizer, int64_t vocab_size, std::vector<int32_t> stop_tokens,
                    size_t max_bytes = size_t{64} << 20);
  /// Of kToolCalls, before the first one.
  void set_chat_template(std::string text) { chat_template_ = std::move(text); }

  /// Null for kind kNone. `chat_prompt`: as in GenerateRequest; "": the text is not the answer of a chat. Errors: as
  /// Constraint's; not_found: the model has no tokenizer.
  Result<std::shared_ptr<const Constraint>> compile(const OutputConstraint& constraint,
                                                    std::string_view chat_prompt = {});
  /// The texts of all tokens. There must be a tokenizer.
  std::shared_ptr<const TokenTrie> vocabulary();

 private:
  void drop_old();
  const Tokenizer* tokenizer_;
  const int64_t vocab_size_;
  const std::vector<int32_t> stop_tokens_;
  const size_t max_bytes_;
  std::string chat_template_;
  std::mutex mutex_;
  std::shared_ptr<const TokenTrie> trie_;
  struct Kept {
    OutputConstraint key;
    int place;  ///< where the prompt leaves off, as AnswerPlace; -1: there is none
    std::shared_ptr<const Constraint> constraint;
  };
  std::list<Kept> kept_;  ///< the latest first
};

}  // namespace redline
