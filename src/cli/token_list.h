// Parses token ids from the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline::cli {

/// Parses "1,2,3"; spaces and line ends are separators too. invalid_argument: the message names the word that is not a
/// token id.
Result<std::vector<int32_t>> parse_tokens(std::string_view text);
/// Parses the file of that name, or the list itself if it starts like a list and no such file exists.
Result<std::vector<int32_t>> read_tokens(const std::string& text_or_file);

}  // namespace redline::cli
