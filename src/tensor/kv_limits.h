// What attention with a cache of keys and values can compute.
#pragma once

#include <cstdint>

namespace redline {

/// The largest head, of keys and of values: DeepSeek's latent vector with its rotated part has 576 elements.
inline constexpr int64_t kMaxKvHeadDim = 640;

}  // namespace redline
