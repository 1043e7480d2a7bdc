#include "llm/output_constraints.h"

#include <algorithm>

#include "chat/tool_call_grammar.h"

namespace redline {

OutputConstraints::OutputConstraints(const Tokenizer* tokenizer, int64_t vocab_size, std::vector<int32_t> stop_tokens,
                                     size_t max_bytes)
    : tokenizer_(tokenizer), vocab_size_(vocab_size), stop_tokens_(std::move(stop_tokens)), max_bytes_(max_bytes) {}

std::shared_ptr<const TokenTrie> OutputConstraints::vocabulary() {
  std::lock_guard lock(mutex_);
  if (!trie_) trie_ = TokenTrie::make(*tokenizer_, vocab_size_, stop_tokens_);
  return trie_;
}

Result<std::shared_ptr<const Constraint>> OutputConstraints::compile(const OutputConstraint& c) {
  using Kind = OutputConstraint::Kind;
  OutputConstraint key = c;  // of all prompts that leave off at the same place
  if (c.kind == Kind::kToolCalls) key.prompt = std::to_string(static_cast<int>(answer_place(chat_template_, c.prompt)));
  if (c.kind == Kind::kNone) return std::shared_ptr<const Constraint>();
  if (!tokenizer_) return not_found("an output constraint needs a tokenizer, and the model has none");
  const auto same = [&](const Kept& kept) { return kept.key == key; };
  {
    std::lock_guard lock(mutex_);
    if (const auto found = std::find_if(kept_.begin(), kept_.end(), same); found != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, found);
      drop_old();
      return kept_.front().constraint;
    }
  }
  const auto compiled = [&]() -> Result<std::shared_ptr<const Constraint>> {
    switch (c.kind) {
      case Kind::kGrammar: return Constraint::from_grammar(c.text, vocabulary());
      case Kind::kRegex: return Constraint::from_regex(c.text, vocabulary());
      case Kind::kToolCalls:
        return compile_tool_calls({chat_template_, c.prompt, c.text, c.allows_several_calls, c.json}, vocabulary());
      case Kind::kJsonSchema: return Constraint::from_json_schema(c.text, vocabulary(), {}, c.json);
      default: return Constraint::from_choices(c.choices, vocabulary());
    }
  }();
  if (!compiled.ok()) return compiled;
  std::lock_guard lock(mutex_);
  if (std::none_of(kept_.begin(), kept_.end(), same)) kept_.push_front({std::move(key), *compiled});
  drop_old();
  return compiled;
}

// What they keep grows while texts are generated. Requests in progress keep theirs.
void OutputConstraints::drop_old() {
  constexpr size_t kMaxKept = 32;
  size_t count = 0, bytes = 0;
  auto at = kept_.begin();
  for (; at != kept_.end() && count < kMaxKept; ++at, ++count) {
    bytes += at->constraint->cache_bytes();
    if (bytes > max_bytes_ && count > 0) break;
  }
  kept_.erase(at, kept_.end());
}

}  // namespace redline
