// The option --dtype.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"

namespace redline::cli {

/// Returns the names that precision_from_name() accepts.
inline std::vector<std::string> precision_names() { return {"auto", "f32", "bf16", "q8", "q8_0", "w8a8"}; }

inline constexpr const char* kPrecisionHelp =
    "arithmetic: f32 throughout; the other types convert the weights, q8 to w8a8 on CPUs with int8 tiles and else to "
    "q8_0; auto keeps the stored types";

/// Adds the option for image and embedding models.
inline void add_precision(OptionList& v, std::string& precision) {
  v(precision, "dtype", "TYPE", kPrecisionHelp, {.choices = precision_names(), .aliases = {"--type"}});
}

}  // namespace redline::cli
