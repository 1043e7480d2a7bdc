// Makes expressions for JSON strings whose value is in a regular language, and has the languages of JSON Schema's
// formats.
#pragma once

#include "constraints/byte_dfa.h"

namespace redline {

/// Returns the regular expression of a format; "" if it is unknown.
std::string_view format_pattern(std::string_view format);
/// Returns "date, date-time, ..."
std::string known_formats();

/// Returns an expression for a string in quotes with any characters, in any of JSON's spellings.
Grammar::Expr any_json_string(Grammar& grammar, uint32_t min_chars, uint32_t greatest_chars);
/// Returns an expression for a string in quotes whose value is in the language (of well-formed UTF-8) and has a number
/// of characters within the bounds; nothing() if there is no such string. Only characters that must be escaped are,
/// each in one way.
/// unsupported: the lengths of the language's texts have gaps, and the bounds are too large to list them.
Result<Grammar::Expr> json_string_of(Grammar& grammar, const ByteDfa& values, uint32_t min_chars,
                                     uint32_t greatest_chars);
/// Returns the spelling of one string value, with its quotes.
std::string spell_json_string(std::string_view value);

}  // namespace redline
