// LZW (Welch 1984) as GIF and TIFF files use it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace redline {

struct LzwForm {
  int literal_bits = 8;            ///< 2 .. 8; codes begin with one bit more
  bool is_high_bit_first = false;  ///< codes begin at the highest bit of a byte (TIFF), else at the lowest (GIF)
  bool widens_one_early = false;   ///< codes get another bit one entry before the table needs it (TIFF)
};

/// Bytes that a file may hold for each byte of codes: a code of 9 bits or more stands for at most 4096 bytes.
inline constexpr int64_t kMaxLzwRatio = 4096;

/// Writes decoded bytes to `out` until it is full, and returns their number. It is smaller than the size of `out` if
/// the codes end early or a code is invalid.
size_t decode_lzw(std::string_view codes, const LzwForm& form, std::span<uint8_t> out);

}  // namespace redline
