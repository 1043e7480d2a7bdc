// Token ids as a user writes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline::cli {

/// "1,2,3"; spaces and line ends separate as well. invalid_argument: names the
/// word that is no token id.
Result<std::vector<int32_t>> parse_tokens(std::string_view text);
/// The ids in the file of that name, or the list itself when it begins like one and there is no such file.
Result<std::vector<int32_t>> read_tokens(const std::string& text_or_file);

}  // namespace redline::cli
