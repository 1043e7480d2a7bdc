// Replaces member names of the API, which messages of the library use, by flags of the command line.
#pragma once

#include <string>

namespace redline::cli {

/// Converts "top_p is 0" to "--top-p is 0", for the members that have a flag. Other words, such as paths, stay.
std::string with_flag_names(const std::string& message);

}  // namespace redline::cli
