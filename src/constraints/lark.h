// Grammars in the notation of Lark (https://lark-parser.readthedocs.io/en/stable/grammar.html), as custom tools carry
// them: rules, terminals, strings, regular expressions, groups, repetitions, %import common and %ignore.
#pragma once

#include "constraints/grammar.h"

namespace redline {

/// The texts of the rule `start`. A text belongs to the language if it can be cut into terminals in any way, as with
/// Lark's Earley parser and its dynamic lexer; priorities, aliases and the prefixes of rules only shape the tree and
/// have no effect. Ignored terminals may stand before, between and behind others.
/// invalid_argument, with line and column: a syntax error, an undefined or twice defined name, or a terminal that uses
/// itself. unsupported: templates, %declare, %override, %extend, imports from elsewhere than `common`, flags of
/// expressions other than i (strings), s and u, and constructs of RegexSyntax, by name.
Result<Grammar> parse_lark(std::string_view text, CompileDeadline& deadline);

}  // namespace redline
