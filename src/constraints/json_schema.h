// Converts JSON Schema (draft 7 and 2020-12) to a grammar.
#pragma once

#include "constraints/grammar.h"
#include "redline/json_format.h"

namespace redline {

/// Returns a grammar of values that the schema accepts, with these restrictions:
/// - members of an object come in the order of `properties`; there are other members only if additionalProperties is
///   given, if the schema names no properties and patterns, or with JsonFormat::allows_additional;
/// - numbers have at most 15 digits; with bounds, no exponent.
/// Each keyword is enforced, is an annotation, or makes an error: unsupported, with the keyword and the JSON pointer of
/// its schema. invalid_argument: text that is not JSON (with position), or a keyword whose value has the wrong type.
Result<Grammar> grammar_of_json_schema(std::string_view schema, const JsonFormat& options, CompileDeadline& deadline);
/// Adds a rule to a grammar for the values of the part of a schema that a JSON pointer names ("": the whole schema).
Result<Grammar::Rule> add_json_schema(Grammar& grammar, std::string_view schema, const std::string& pointer,
                                      const JsonFormat& options, CompileDeadline& deadline);

}  // namespace redline
