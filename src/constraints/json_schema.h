// JSON Schema (draft 7 and 2020-12) as a grammar.
#pragma once

#include "constraints/grammar.h"
#include "redline/json_format.h"

namespace redline {

/// A grammar of values that the schema accepts; not of all of them:
/// - members of an object come in the order of `properties`; others only where additionalProperties allows them by
/// name,
///   or where the schema names no properties;
/// - numbers have at most 15 digits; with bounds, no exponent.
/// Each keyword is enforced, is an annotation, or makes an error: unsupported, with the keyword and the JSON pointer of
/// its schema. invalid_argument: text that is not JSON (with position), or a keyword whose value has the wrong type.
Result<Grammar> grammar_of_json_schema(std::string_view schema, const JsonFormat& options, CompileDeadline& deadline);
/// The values of the part of a schema that a JSON pointer names ("": all of it), as a rule of a larger grammar.
Result<Grammar::Rule> add_json_schema(Grammar& grammar, std::string_view schema, const std::string& pointer,
                                      const JsonFormat& options, CompileDeadline& deadline);

}  // namespace redline
