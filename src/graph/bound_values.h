// Inputs and outputs of a graph that lie outside its program: whoever runs it says where (runtime/network.h bind).
#pragma once

#include <string_view>

namespace redline {

/// Names of such inputs and outputs begin so. The arena holds no room for them, only an address of their own by which
/// their uses are found.
inline constexpr std::string_view kBoundPrefix = "bound.";
inline bool is_bound_name(std::string_view name) { return name.substr(0, kBoundPrefix.size()) == kBoundPrefix; }

}  // namespace redline
