// Messages of the library name members of its API; on the command line they are flags.
#pragma once

#include <string>

namespace redline::cli {

/// "top_p is 0" -> "--top-p is 0", for the members that have a flag. Other words, paths for one, stay.
std::string with_flag_names(const std::string& message);

}  // namespace redline::cli
