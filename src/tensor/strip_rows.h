// The height of a row panel of a packed weight (tensor/packed_weight.h); also included by kernel sources.
#pragma once

#include <cstdint>

namespace redline {

/// Rows per row panel of a packed weight. 64 bytes hold 16 rows x 4 bytes of K.
inline constexpr int64_t kStripRows = 16;

}  // namespace redline
