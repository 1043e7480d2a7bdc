// Resolves names to slots, with the scopes of jinja2: a variable that a block assigns is local to the block, a name
// that is only read comes from an enclosing scope or from the variables of the rendering, and branches of an if share
// the enclosing scope.
#pragma once

#include "chat/jinja/lexer.h"
#include "chat/jinja/syntax_tree.h"

namespace redline::jinja {

/// Returns false, with `error` set, for an assignment to `loop`, an unknown filter or test, ...
bool resolve_names(Nodes& body, Scope& root, SyntaxError& error);

}  // namespace redline::jinja
