// Numbers that tests write where arithmetic must meet or spare them.
#pragma once

#include <limits>

namespace redline {

inline constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kUntouched = -77.25f;  ///< what stands in an output before, where no kernel may write

}  // namespace redline
