// Reads the operand that a product of a warp group finds through a descriptor (kernels/tiles/matrix_descriptor.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace redline::emu {

/// Reads bytes[row], 32 bytes of K for each of the 64 rows of the operand. Returns false if the descriptor has bits
/// that must be zero, or points to bytes that do not exist.
inline bool read_operand(const std::vector<uint8_t>& shared, uint64_t descriptor, uint8_t (&bytes)[64][32]) {
  const auto field = [&](int bit) { return static_cast<uint32_t>(descriptor >> bit & 0x3fff) << 4; };
  const uint32_t begin = field(0), k_stride = field(16), row_stride = field(32);
  const auto mode = static_cast<uint32_t>(descriptor >> 62);
  // Reserved bits between the fields, and the offset of atoms that do not begin at a multiple of their size.
  if ((descriptor & 0x3fffc000c000c000u) != 0) return false;
  const uint32_t xor_bits = mode == 0 ? 0 : 4 - mode, row_bytes = 16u << xor_bits;
  for (uint32_t row = 0; row < 64; ++row)
    for (uint32_t unit = 0; unit < 2; ++unit) {
      uint32_t at = begin + row / 8 * row_stride + row % 8 * row_bytes + unit * (mode == 0 ? k_stride : 16);
      at ^= (at >> 7 & ((1u << xor_bits) - 1)) << 4;
      if (at + 16 > shared.size()) return false;
      std::memcpy(bytes[row] + 16 * unit, shared.data() + at, 16);
    }
  return true;
}

/// Reads right[k][row], element k of row `row` of the operand, in bfloat16.
inline bool read_operand(const std::vector<uint8_t>& shared, uint64_t descriptor, float (&right)[16][64]) {
  uint8_t bytes[64][32];
  if (!read_operand(shared, descriptor, bytes)) return false;
  for (uint32_t row = 0; row < 64; ++row)
    for (uint32_t k = 0; k < 16; ++k) {
      uint16_t element;
      std::memcpy(&element, bytes[row] + 2 * k, sizeof(element));
      right[k][row] = __builtin_bit_cast(float, static_cast<uint32_t>(element) << 16);
    }
  return true;
}

}  // namespace redline::emu
