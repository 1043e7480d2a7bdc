#include "cli/constraint_args.h"

#include "base/mapped_file.h"

namespace redline::cli {

void ConstraintArgs::visit(OptionList& v, char letter) {
  v(grammar, "grammar", "TEXT|@FILE", "text that matches a grammar in GBNF, the notation of llama.cpp",
    {.not_with = {"json-schema", "regex", "choice"}});
  v(json_schema, "json-schema", "TEXT|@FILE", "JSON that a JSON Schema accepts; {} is any JSON",
    {.letter = letter, .not_with = {"regex", "choice"}});
  v(regex, "regex", "PATTERN", "text that a regular expression matches as a whole", {.not_with = {"choice"}});
  v(choices, "choice", "TEXT", "one of the texts that this flag is given with");
}

Result<OutputConstraint> ConstraintArgs::constraint() const {
  using Kind = OutputConstraint::Kind;
  OutputConstraint constraint;
  const auto take = [&](Kind kind, const std::optional<std::string>& text, bool may_be_file) -> Status {
    if (!text) return {};
    constraint.kind = kind;
    constraint.text = *text;
    if (may_be_file && text->starts_with('@')) {
      REDLINE_ASSIGN(constraint.text, read_text_file(text->substr(1)));
    }
    return {};
  };
  REDLINE_TRY(take(Kind::kGrammar, grammar, true));
  REDLINE_TRY(take(Kind::kJsonSchema, json_schema, true));
  REDLINE_TRY(take(Kind::kRegex, regex, false));
  if (!choices.empty()) constraint = {.kind = Kind::kChoice, .text = "", .choices = choices};
  return constraint;
}

}  // namespace redline::cli
