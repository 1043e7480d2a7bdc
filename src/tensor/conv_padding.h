// Padding of the axes of convolutions.
#pragma once

#include <cstdint>

namespace redline {

/// The values that a convolution reads at positions outside of its input.
enum class ConvPadding : uint8_t {
  kZeros,
  kReplicate,  ///< the nearest input element
  kReflect,    ///< mirrored at the first and the last input, which are not repeated
  kCircular,   ///< the input repeated
};

/// Returns the index in [0, size) of the input element that is read at `position`, or -1 if a zero is read. Any
/// position is valid: reflection and repetition are applied as often as needed. Returns -1 if size is 0.
[[gnu::always_inline]] inline constexpr int64_t padded_index(int64_t position, int64_t size, ConvPadding padding) {
  if (position >= 0 && position < size) return position;
  if (size <= 0 || padding == ConvPadding::kZeros) return -1;
  if (padding == ConvPadding::kReplicate) return position < 0 ? 0 : size - 1;
  const int64_t period = padding == ConvPadding::kCircular ? size : size > 1 ? 2 * (size - 1) : 1;
  const int64_t within = (position % period + period) % period;
  return within < size ? within : period - within;
}

}  // namespace redline
