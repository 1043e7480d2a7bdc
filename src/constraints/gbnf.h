// Parses GBNF, the grammar notation of llama.cpp.
#pragma once

#include "constraints/grammar.h"
#include "constraints/token_trie.h"

namespace redline {

/// Parses a grammar: rules `name ::= ...` with literals, character classes, `.`, groups, `|`, `* + ? {m} {m,} {m,n}`,
/// comments, and tokens `<name>`, `<[id]>`, `!<name>`. The root is the rule `root`. A rule that is defined twice takes
/// the last definition. Beyond llama.cpp, names may contain `_`, repetitions have no bound and rules may be
/// left-recursive. invalid_argument: line, column and reason.
Result<Grammar> parse_gbnf(std::string_view text, const TokenTrie& trie, CompileDeadline& deadline);

}  // namespace redline
