// Parses template text to a tree, with jinja2's grammar and the extensions that transformers turns on: break, continue,
// and {% generation %}, whose body is a call block.
#pragma once

#include "chat/jinja/lexer.h"
#include "chat/jinja/syntax_tree.h"

namespace redline::jinja {

/// The arena of `constants` keeps the constants. Returns false if there is an error, with `error` set.
bool parse(std::string_view source, Evaluation& constants, Nodes& body, SyntaxError& error);

}  // namespace redline::jinja
