// Parses grammars in the notation of Lark (https://lark-parser.readthedocs.io/en/stable/grammar.html), which custom
// tools have: rules, terminals, strings, regular expressions, groups, repetitions, %import common and %ignore.
#pragma once

#include "constraints/grammar.h"

namespace redline {

/// Returns the grammar of the rule `start`. A text matches if it can be divided into terminals in any way, as with
/// Lark's Earley parser and its dynamic lexer. Priorities, aliases and the prefixes of rules have no effect, because
/// they only concern the parse tree. Ignored terminals may occur before, between and after others.
/// invalid_argument, with line and column: a syntax error, an undefined or twice defined name, or a terminal that uses
/// itself. unsupported: templates, %declare, %override, %extend, imports from elsewhere than `common`, flags of
/// expressions other than i (strings), s and u, and constructs of RegexSyntax, by name.
Result<Grammar> parse_lark(std::string_view text, CompileDeadline& deadline);

}  // namespace redline
