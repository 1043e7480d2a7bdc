// Makes the grammar of an answer: calls, if a call is required (tool_choice), or text that matches a constraint, after
// the reasoning of the model's family.
#pragma once

#include "chat/chat_output.h"
#include "constraints/constraint.h"
#include "constraints/grammar.h"
#include "redline/json_format.h"

namespace redline {

struct ToolCallRules {
  std::string_view chat_template;  ///< text of the template, which determines the family's format
  std::string_view prompt;         ///< the rendered prompt, or its end; it may already have opened the reasoning
  /// OpenAI's list of the tools that may be called. A function with {"format": {"type": "grammar", "syntax": "lark" or
  /// "regex", "definition": ..}} stands for a custom tool: its one parameter, the text `input`, matches the grammar.
  std::string_view tools_json;
  bool allows_several = false;  ///< more than one call is allowed if the family's format has several
  JsonFormat json = {};         ///< format of the arguments
};

/// Returns the grammar of texts that ChatOutputParser reads as one call, or several, whose arguments match the tools'
/// JSON Schemas; after reasoning if the family reasons. A family without its own format uses that of Hermes. If values
/// are written without quotes, only `enum` and `const` restrict strings (plain_values.h).
/// invalid_argument: tools that are not a list of functions, or an invalid schema. unsupported: a keyword of a schema,
/// or a format whose calls cannot be required; the message names it.
Result<Grammar> grammar_of_tool_calls(const ToolCallRules& rules, const TokenTrie& trie, CompileDeadline& deadline);
/// Returns the grammar of texts that ChatOutputParser (with the same ContentKind) reads as content that matches `text`,
/// or as calls if there are tools; after reasoning if the family reasons and the prompt has not skipped it. Errors: as
/// grammar_of_tool_calls().
Result<Grammar> grammar_of_answer(const ToolCallRules& rules, Grammar text, ContentKind kind, const TokenTrie& trie,
                                  CompileDeadline& deadline);
/// Returns the compiled constraint of grammar_of_tool_calls(). Errors: those of that function and of
/// Constraint::compile().
Result<std::shared_ptr<const Constraint>> compile_tool_calls(const ToolCallRules& rules,
                                                             std::shared_ptr<const TokenTrie> trie,
                                                             const ConstraintLimits& limits = {});

}  // namespace redline
