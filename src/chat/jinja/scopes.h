// Names to slots, with the scopes of jinja2: what a block assigns is local to it, a name that is only read comes from
// around it or from the variables of the rendering, and branches of an if share the scope around them.
#pragma once

#include "chat/jinja/lexer.h"
#include "chat/jinja/syntax_tree.h"

namespace redline::jinja {

/// False, with `error` set: an assignment to `loop`, an unknown filter or test, ...
bool resolve_names(Nodes& body, Scope& root, SyntaxError& error);

}  // namespace redline::jinja
