// JSON for --json: keys in insertion order; invalid UTF-8 becomes U+FFFD instead of an exception.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/terminal.h"

namespace redline::cli {

using Json = nlohmann::ordered_json;

std::string to_text(const Json& json, int indent = 2);

/// Prints JSON. `indent` -1: on one line, for long lists.
Status print_json(const Json& json, Terminal& terminal, int indent = 2);

}  // namespace redline::cli
