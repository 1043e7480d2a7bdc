// Tables of the 4-bit formats with non-uniform codes.
#pragma once

#include <cstdint>

namespace redline::blocks {

/// Codes of IQ4_NL and IQ4_XS (ggml), denser near zero.
static constexpr int8_t kIq4Codes[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/// Codes of E2M1, doubled to integers (OCP Microscaling Formats 1.0, section 5.3.3).
static constexpr int8_t kE2m1DoubledCodes[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// The two tables above as unsigned operands (row_panel.h kTable): + 128 and + 12.
static constexpr uint8_t kIq4Unsigned[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static constexpr uint8_t kE2m1Unsigned[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
/// The odd numbers from -15 to 15, + 15.
static constexpr uint8_t kOddUnsigned[16] = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};

}  // namespace redline::blocks
