// What commands that draw many pictures read.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace redline::cli {

/// A JSON list of texts, or a list of objects with "prompt", or one prompt a line (empty lines left out).
/// invalid_argument: no file given, none in it, or JSON of another form.
Result<std::vector<std::string>> read_prompts(const std::string& path);

}  // namespace redline::cli
