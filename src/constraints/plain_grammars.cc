#include "constraints/plain_grammars.h"

#include "constraints/regex_syntax.h"

namespace redline {

Result<Grammar> grammar_of_regex(std::string_view regex, CompileDeadline& deadline) {
  REDLINE_ASSIGN(const RegexSyntax syntax, RegexSyntax::parse(regex));
  Grammar grammar;
  grammar.root = grammar.add_rule("root");
  REDLINE_ASSIGN(const Grammar::Expr whole, syntax.whole(grammar, deadline));
  grammar.define(grammar.root, whole);
  return grammar;
}

Result<Grammar> grammar_of_choices(std::span<const std::string> choices, const ConstraintLimits& limits,
                                   CompileDeadline& deadline) {
  if (choices.empty()) return invalid_argument("there are no choices");
  size_t bytes = 0;
  for (const std::string& choice : choices) bytes += choice.size();
  if (bytes > limits.max_input_bytes)
    return invalid_argument("the choices have {} bytes; at most {} are allowed", bytes, limits.max_input_bytes);
  Grammar grammar;
  grammar.root = grammar.add_rule("root");
  grammar.define(grammar.root, grammar.choice_of_texts({choices.begin(), choices.end()}, &deadline));
  return grammar;
}

}  // namespace redline
