// Calls of tools as a grammar: what a model must write when a call is demanded (tool_choice).
#pragma once

#include "constraints/constraint.h"
#include "constraints/grammar.h"
#include "redline/json_format.h"

namespace redline {

struct ToolCallRules {
  std::string_view chat_template;  ///< its text, which tells the family's format
  std::string_view prompt;         ///< the rendered prompt, or its end: it may have opened the reasoning already
  std::string_view tools_json;     ///< OpenAI's list of the tools that may be called
  bool allows_several = false;     ///< more than one call, where the family writes several
  JsonFormat json = {};            ///< of the arguments
};

/// Where the rendered prompt leaves off; of rules that differ in the prompt only, those with the same place are the
/// same.
enum class AnswerPlace : uint8_t { kAnswer, kReasoning, kHeader };
AnswerPlace answer_place(std::string_view chat_template, std::string_view prompt);

/// Texts that ChatOutputParser reads as one call, or several, whose arguments match the tools' JSON Schemas, after
/// reasoning if the family reasons. A family without a format of its own writes that of Hermes. Where values are
/// written without quotes, strings follow `enum` and `const` only.
/// invalid_argument: tools that are not a list of functions, or an invalid schema. unsupported: a keyword of a schema,
/// or a format whose calls cannot be demanded, by name.
Result<Grammar> grammar_of_tool_calls(const ToolCallRules& rules, const TokenTrie& trie, CompileDeadline& deadline);
/// The compiled constraint of grammar_of_tool_calls(). Errors as there, and those of Constraint::compile().
Result<std::shared_ptr<const Constraint>> compile_tool_calls(const ToolCallRules& rules,
                                                             std::shared_ptr<const TokenTrie> trie,
                                                             const ConstraintLimits& limits = {});

}  // namespace redline
