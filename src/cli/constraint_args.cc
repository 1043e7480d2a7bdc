#include "cli/constraint_args.h"

#include <filesystem>

#include "base/mapped_file.h"

namespace redline::cli {

void ConstraintArgs::visit(OptionList& v, char letter) {
  v(grammar, "grammar", "TEXT|@FILE", "constrain the text to a grammar in GBNF, the notation of llama.cpp",
    {.not_with = {"json-schema", "regex", "choice"}});
  v(json_schema, "json-schema", "TEXT|@FILE", "constrain the text to JSON that a JSON Schema accepts; {} is any JSON",
    {.letter = letter, .not_with = {"regex", "choice"}});
  v(json_compact, "json-compact", "", "write JSON without white space; default: as models write it, {\"a\": 1}",
    {.needs = {"json-schema"}});
  v(json_additional, "json-additional-properties", "",
    "allow members that the schema does not name, unless it forbids them", {.needs = {"json-schema"}});
  v(json_relaxed, "json-relaxed", "", "ignore keywords of the schema that cannot be enforced; default: they are errors",
    {.needs = {"json-schema"}});
  v(regex, "regex", "PATTERN", "constrain the text to a regular expression, which must match all of it",
    {.not_with = {"choice"}});
  v(choices, "choice", "TEXT", "constrain the text to this one or to another --choice");
}

Result<OutputConstraint> ConstraintArgs::constraint() const {
  using Kind = OutputConstraint::Kind;
  OutputConstraint constraint;
  const auto take = [&](Kind kind, std::string_view flag, const std::optional<std::string>& text) -> Status {
    if (!text) return {};
    constraint.kind = kind;
    constraint.text = *text;
    if (kind == Kind::kRegex) return {};
    if (text->starts_with('@')) {
      REDLINE_ASSIGN(constraint.text, read_text_file(text->substr(1)));
      return {};
    }
    // The text of a grammar or a schema is never the name of a file, so the user forgot the '@'.
    std::error_code error;
    if (std::filesystem::is_regular_file(*text, error))
      return invalid_argument("flag --{}: {} is a file; write @{}", flag, *text, *text);
    return {};
  };
  REDLINE_TRY(take(Kind::kGrammar, "grammar", grammar));
  REDLINE_TRY(take(Kind::kJsonSchema, "json-schema", json_schema));
  REDLINE_TRY(take(Kind::kRegex, "regex", regex));
  if (!choices.empty()) constraint = {.kind = Kind::kChoice, .text = "", .choices = choices};
  constraint.json = {.is_compact = json_compact, .allows_additional = json_additional, .is_relaxed = json_relaxed};
  return constraint;
}

Status note_unenforced(TextEngine& engine, const OutputConstraint& constraint, Terminal& terminal) {
  if (!constraint.json.is_relaxed) return {};
  REDLINE_ASSIGN(const std::vector<std::string> keywords, engine.unenforced_keywords(constraint));
  if (!keywords.empty())
    terminal.note("redline: warning: the JSON schema's {} {} not enforced", fmt::join(keywords, ", "),
                  keywords.size() == 1 ? "is" : "are");
  return {};
}

}  // namespace redline::cli
