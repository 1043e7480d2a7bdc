// Answers as a grammar: what a model must write when a call is demanded (tool_choice), or text that matches a
// constraint, after the reasoning of its family.
#pragma once

#include "chat/chat_output.h"
#include "constraints/constraint.h"
#include "constraints/grammar.h"
#include "redline/json_format.h"

namespace redline {

struct ToolCallRules {
  std::string_view chat_template;  ///< its text, which tells the family's format
  std::string_view prompt;         ///< the rendered prompt, or its end: it may have opened the reasoning already
  /// OpenAI's list of the tools that may be called. A function with {"format": {"type": "grammar", "syntax": "lark" or
  /// "regex", "definition": ..}} stands for a custom tool: its one parameter, the text `input`, matches the grammar.
  std::string_view tools_json;
  bool allows_several = false;  ///< more than one call, where the family writes several
  JsonFormat json = {};         ///< of the arguments
};

/// Texts that ChatOutputParser reads as one call, or several, whose arguments match the tools' JSON Schemas, after
/// reasoning if the family reasons. A family without a format of its own writes that of Hermes. Where values are
/// written without quotes, strings follow `enum` and `const` only (plain_values.h).
/// invalid_argument: tools that are not a list of functions, or an invalid schema. unsupported: a keyword of a schema,
/// or a format whose calls cannot be demanded, by name.
Result<Grammar> grammar_of_tool_calls(const ToolCallRules& rules, const TokenTrie& trie, CompileDeadline& deadline);
/// Texts that ChatOutputParser (for the same ContentKind) reads as content that `text` matches, or as calls if there
/// are tools, after reasoning if the family reasons and the prompt has not left it out. Errors as above.
Result<Grammar> grammar_of_answer(const ToolCallRules& rules, Grammar text, ContentKind kind, const TokenTrie& trie,
                                  CompileDeadline& deadline);
/// The compiled constraint of grammar_of_tool_calls(). Errors as there, and those of Constraint::compile().
Result<std::shared_ptr<const Constraint>> compile_tool_calls(const ToolCallRules& rules,
                                                             std::shared_ptr<const TokenTrie> trie,
                                                             const ConstraintLimits& limits = {});

}  // namespace redline
