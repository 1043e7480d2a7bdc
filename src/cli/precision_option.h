// The names of precisions, for flags that take one.
#pragma once

#include <string>
#include <vector>

namespace redline::cli {

/// Returns the names that precision_from_name() accepts.
inline std::vector<std::string> precision_names() { return {"auto", "f32", "bf16", "q8", "q8_0", "w8a8"}; }

}  // namespace redline::cli
