// Inputs and outputs of a graph that live outside its program. The caller supplies their addresses
// (runtime/executable.h bind).
#pragma once

#include <string_view>

namespace redline {

/// Name prefix of such inputs and outputs. The arena reserves one cache line for each, which holds no data.
inline constexpr std::string_view kExternalPrefix = "external.";
inline bool is_external_name(std::string_view name) {
  return name.substr(0, kExternalPrefix.size()) == kExternalPrefix;
}

}  // namespace redline
