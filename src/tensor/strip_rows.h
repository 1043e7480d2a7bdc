// The height of a strip of a packed weight (tensor/packed_weight.h), for kernel sources too.
#pragma once

#include <cstdint>

namespace redline {

/// Rows of a packed weight that share a strip. One 64-byte line holds 16 rows x 4 bytes of K.
inline constexpr int64_t kStripRows = 16;

}  // namespace redline
