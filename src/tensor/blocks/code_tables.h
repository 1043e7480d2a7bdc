// Tables of the 4-bit formats whose codes are not evenly spaced.
#pragma once

#include <cstdint>

namespace redline::blocks {

/// IQ4_NL and IQ4_XS (ggml): denser near zero.
static constexpr int8_t kIq4Codes[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/// E2M1, doubled to be whole numbers (OCP Microscaling Formats 1.0, section 5.3.3).
static constexpr int8_t kE2m1DoubledCodes[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace redline::blocks
