// The output constraints of a text engine's requests: compiled once per text and vocabulary.
#pragma once

#include <list>
#include <memory>
#include <mutex>

#include "chat/chat_output.h"
#include "constraints/constraint.h"
#include "redline/text.h"

namespace redline {

/// Returns how an answer with a constraint of this kind is parsed.
ContentKind content_kind(OutputConstraint::Kind kind);

/// Compiles and caches constraints. Thread-safe. The trie of the vocabulary is built with the first constraint.
class OutputConstraints {
 public:
  /// `tokenizer` must outlive this object; null: constraints are errors. `max_bytes`: maximum bytes of the states that
  /// cached constraints have computed; the latest constraint is kept in any case.
  OutputConstraints(const Tokenizer* tokenizer, int64_t vocab_size, std::vector<int32_t> stop_tokens,
                    size_t max_bytes = size_t{64} << 20);
  /// Sets the chat template that kToolCalls needs. Called before the first such constraint.
  void set_chat_template(std::string text) { chat_template_ = std::move(text); }

  /// Compiles a constraint or returns the cached one; null for kind kNone. `chat_prompt`: as in GenerateRequest; "":
  /// the text is not the answer of a chat. Errors: those of Constraint; not_found: the model has no tokenizer.
  Result<std::shared_ptr<const Constraint>> compile(const OutputConstraint& constraint,
                                                    std::string_view chat_prompt = {});
  /// Returns the texts of all tokens. Requires a tokenizer.
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
    int place;  ///< the part of an answer in which the prompt ends, as AnswerPlace; -1: not the prompt of a chat
    std::shared_ptr<const Constraint> constraint;
  };
  std::list<Kept> kept_;  ///< the most recently used first
};

}  // namespace redline
