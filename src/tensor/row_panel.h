// Sizes of packed weights (tensor/packed_weight.h) for kernel sources.
#pragma once

#include <cstdint>

namespace redline {

/// Rows per row panel of a packed weight. 64 bytes hold 16 rows x 4 bytes of K.
inline constexpr int64_t kRowPanelRows = 16;

/// Number of input channels of a convolution that are contiguous in its weight and in a patch of its input, if the
/// number of channels is a multiple of it.
inline constexpr int64_t kConvBlock = 32;

}  // namespace redline
