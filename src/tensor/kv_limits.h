// Limits of attention over a KV cache.
#pragma once

#include <cstdint>

namespace redline {

/// Maximum head size, of keys and of values: DeepSeek's latent vector with its rotated part has 576 elements.
inline constexpr int64_t kMaxKvHeadDim = 640;

}  // namespace redline
