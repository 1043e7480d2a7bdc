#include "llm/output_constraints.h"

#include <algorithm>

#include "chat/tool_call_grammar.h"
#include "constraints/gbnf.h"
#include "constraints/json_schema.h"
#include "constraints/lark.h"
#include "constraints/plain_grammars.h"

namespace redline {

OutputConstraints::OutputConstraints(const Tokenizer* tokenizer, int64_t vocab_size, std::vector<int32_t> stop_tokens,
                                     size_t max_bytes)
    : tokenizer_(tokenizer), vocab_size_(vocab_size), stop_tokens_(std::move(stop_tokens)), max_bytes_(max_bytes) {}

std::shared_ptr<const TokenTrie> OutputConstraints::vocabulary() {
  std::lock_guard lock(mutex_);
  if (!trie_) trie_ = TokenTrie::make(*tokenizer_, vocab_size_, stop_tokens_);
  return trie_;
}

ContentKind content_kind(OutputConstraint::Kind kind) {
  using Kind = OutputConstraint::Kind;
  if (kind == Kind::kNone || kind == Kind::kToolCalls) return ContentKind::kFree;
  return kind == Kind::kJsonSchema ? ContentKind::kJson : ContentKind::kMatched;
}

namespace {

/// A constraint other than kNone and kToolCalls.
Result<Grammar> grammar_of(const OutputConstraint& c, const TokenTrie& trie, const ConstraintLimits& limits,
                           CompileDeadline& deadline) {
  using Kind = OutputConstraint::Kind;
  switch (c.kind) {
    case Kind::kGrammar: return parse_gbnf(c.text, trie, deadline);
    case Kind::kLark: return parse_lark(c.text, deadline);
    case Kind::kRegex: return grammar_of_regex(c.text, deadline);
    case Kind::kJsonSchema: return grammar_of_json_schema(c.text, c.json, deadline);
    case Kind::kChoice: return grammar_of_choices(c.choices, limits, deadline);
    case Kind::kNone:
    case Kind::kToolCalls: break;
  }
  return internal("this kind of constraint has no grammar of its own");
}

}  // namespace

Result<std::shared_ptr<const Constraint>> OutputConstraints::compile(const OutputConstraint& c,
                                                                     std::string_view chat_prompt) {
  using Kind = OutputConstraint::Kind;
  if (c.kind == Kind::kNone) return std::shared_ptr<const Constraint>();
  if (!tokenizer_) return not_found("an output constraint needs a tokenizer, and the model has none");
  // Prompts that end in the same part of an answer have the same constraint.
  const bool is_chat = !chat_prompt.empty() || c.kind == Kind::kToolCalls;
  const int place = is_chat ? static_cast<int>(answer_place(chat_template_, chat_prompt)) : -1;
  const auto same = [&](const Kept& kept) { return kept.place == place && kept.key == c; };
  {
    std::lock_guard lock(mutex_);
    if (const auto found = std::find_if(kept_.begin(), kept_.end(), same); found != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, found);
      drop_old();
      return kept_.front().constraint;
    }
  }
  const auto compiled = [&]() -> Result<std::shared_ptr<const Constraint>> {
    const ConstraintLimits limits;
    REDLINE_TRY(check_constraint_size(c.text, limits));
    REDLINE_TRY(check_constraint_size(c.tools, limits));
    const ToolCallRules rules{chat_template_, chat_prompt, c.kind == Kind::kToolCalls ? c.text : c.tools,
                              c.allows_several_calls, c.json};
    if (c.kind == Kind::kToolCalls) return compile_tool_calls(rules, vocabulary(), limits);
    const auto trie = vocabulary();
    CompileDeadline deadline(limits);
    REDLINE_ASSIGN(Grammar grammar, grammar_of(c, *trie, limits, deadline));
    if (is_chat) {
      REDLINE_ASSIGN(grammar, grammar_of_answer(rules, std::move(grammar), content_kind(c.kind), *trie, deadline));
    }
    return Constraint::compile(grammar, trie, limits, deadline);
  }();
  if (!compiled.ok()) return compiled;
  std::lock_guard lock(mutex_);
  if (std::none_of(kept_.begin(), kept_.end(), same)) kept_.push_front({c, place, *compiled});
  drop_old();
  return compiled;
}

// Drops the oldest cached constraints. The memory of a constraint grows while texts are generated, so the sizes are
// summed each time. Requests in progress keep their constraints.
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
