// Grammars of constraints that have no notation of their own: a regular expression, and a list of texts.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "constraints/grammar.h"

namespace redline {

/// Returns the grammar of the texts that match the expression as a whole. Errors: those of RegexSyntax::parse() and
/// RegexSyntax::whole().
Result<Grammar> grammar_of_regex(std::string_view regex, CompileDeadline& deadline);

/// Returns the grammar that matches exactly these texts. invalid_argument: there are no texts, or they have more than
/// ConstraintLimits::max_input_bytes.
Result<Grammar> grammar_of_choices(std::span<const std::string> choices, const ConstraintLimits& limits,
                                   CompileDeadline& deadline);

}  // namespace redline
