// Grammars of constraints that have no notation of their own: a regular expression, and a list of texts.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "constraints/grammar.h"

namespace redline {

/// The whole text matches the expression. Errors as RegexSyntax::parse() and RegexSyntax::whole().
Result<Grammar> grammar_of_regex(std::string_view regex, CompileDeadline& deadline);

/// One of the texts. invalid_argument: there are none, or they have more than ConstraintLimits::max_input_bytes.
Result<Grammar> grammar_of_choices(std::span<const std::string> choices, const ConstraintLimits& limits,
                                   CompileDeadline& deadline);

}  // namespace redline
