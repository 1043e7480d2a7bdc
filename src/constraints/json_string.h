// JSON strings whose value lies in a regular language, and the languages of JSON Schema's formats.
#pragma once

#include "constraints/byte_dfa.h"

namespace redline {

/// The regular expression of a format; "": it is not known.
std::string_view format_pattern(std::string_view format);
/// "date, date-time, ..."
std::string known_formats();

/// A string in quotes with any characters, in any of JSON's spellings.
Grammar::Expr any_json_string(Grammar& grammar, uint32_t min_chars, uint32_t greatest_chars);
/// A string in quotes whose value is in the language (of well-formed UTF-8) and has so many characters; nothing where
/// there is none. Characters are escaped where they must be, and in one way.
/// unsupported: the lengths of the language's texts have gaps, and the bounds are too large to list them.
Result<Grammar::Expr> json_string_of(Grammar& grammar, const ByteDfa& values, uint32_t min_chars,
                                     uint32_t greatest_chars);
/// The spelling of one string value, with its quotes.
std::string spell_json_string(std::string_view value);

}  // namespace redline
