// A packed weight in row panels: blocks of 16 rows x kElements, from pack_row_panels to the kernels.
//
//   panel block = head (scales of 16 rows side by side, heads.h), then kElements / 32 steps of code planes (planes.h)
//
// A format adds to its file layout (block.h):
//     using Head, using Planes
//     static constexpr int kOffset;          code = unsigned code - kOffset
//     static constexpr uint8_t kTable[16];   only for non-uniform codes: unsigned code of a nibble
//     static void nibbles(block, q);         only with kTable: the raw nibbles in element order
// vpdpbusd multiplies the unsigned codes; kOffset is compensated with the sums of x.
#pragma once

#include "tensor/blocks/heads.h"
#include "tensor/blocks/planes.h"

namespace redline::blocks {

// Number of lines that unpacking unrolls. The scalar instruction set need not be fast, and with unrolling it would
// compile for minutes.
static constexpr int kUnrollLines = kParts > 2 ? 1 : kStepLines;

template <class Format>
struct RowPanel {
  static constexpr int kSteps = Format::kElements / kStepElements;
  static constexpr int kStepBytes = Format::Planes::kBytes;
  static constexpr int kHeadBytes = Format::Head::kBytes;
  static constexpr int kBytes = kHeadBytes + kSteps * kStepBytes;
  static constexpr bool kHasTable = requires { Format::kTable[0]; };

  REDLINE_BLOCK_INLINE const uint8_t* step(const uint8_t* block, int i) { return block + kHeadBytes + i * kStepBytes; }
  /// Returns line l of a step as unsigned codes.
  REDLINE_BLOCK_INLINE Bytes line(const uint8_t* step, int l, int part) {
    const Bytes q = Format::Planes::line(step, l, part);
    if constexpr (kHasTable) return look_up_part(Format::kTable, q);
    else return q;
  }

  /// Unpacks the whole block: kElements / 4 lines of 16 rows x 4 codes, signed or unsigned; 16 scales and, where the
  /// format has them, 16 mins per group.
  template <bool kSigned>
  REDLINE_BLOCK_INLINE void unpack(const uint8_t* block, uint8_t* lines, float* scales, float* mins) {
    for (int i = 0; i < kSteps; ++i, lines += kStepLines * kLineBytes) {
#pragma GCC unroll kUnrollLines
      for (int l = 0; l < kStepLines; ++l)
#pragma GCC unroll kParts> 2 ? 1 : kParts
        for (int part = 0; part < kParts; ++part) {
          const Bytes codes = line(step(block, i), l, part);
          store_part(lines + l * kLineBytes, part, kSigned ? codes - static_cast<uint8_t>(Format::kOffset) : codes);
        }
    }
    for (int g = 0; g < Format::kElements / Format::kGroup; ++g)
#pragma GCC unroll kParts> 2 ? 1 : kParts
      for (int part = 0; part < kParts; ++part) {
        const Floats scale = Format::Head::scale(block, g, part);
        __builtin_memcpy(scales + g * kRowPanelRowsOf + part * kPartRows, &scale, kVecBytes);
        if constexpr (Format::kHasMins) {
          const Floats min = Format::Head::min(block, g, part);
          __builtin_memcpy(mins + g * kRowPanelRowsOf + part * kPartRows, &min, kVecBytes);
        }
      }
  }

  /// Packs a block. rows[r]: block of row r; nullptr past the last row, packed as zeros.
  REDLINE_BLOCK_INLINE void pack(const uint8_t* const* rows, uint8_t* block) {
    uint8_t q[kRowPanelRowsOf][Format::kElements];
    for (int r = 0; r < kRowPanelRowsOf; ++r) {
      if (rows[r]) unpack_q(rows[r], q[r]);
      else __builtin_memset(q[r], 0, Format::kElements);
    }
    __builtin_memset(block, 0, kHeadBytes);
    for (int r = 0; r < kRowPanelRowsOf; ++r)
      if (rows[r]) Format::Head::pack(rows[r], r, block);
    for (int i = 0; i < kSteps; ++i) {
      uint8_t lines[kStepLines * kLineBytes];
      for (int r = 0; r < kRowPanelRowsOf; ++r)
        for (int l = 0; l < kStepLines; ++l)
          __builtin_memcpy(lines + l * kLineBytes + r * 4, q[r] + i * kStepElements + l * 4, 4);
      Format::Planes::pack(lines, block + kHeadBytes + i * kStepBytes);
    }
  }

 private:
  // Unpacks the stored codes: table nibbles or unsigned codes.
  REDLINE_BLOCK_INLINE void unpack_q(const uint8_t* block, uint8_t* q) {
    if constexpr (kHasTable) {
      Format::nibbles(block, q);
    } else {
      constexpr int kGroups = Format::kElements / Format::kGroup;
      int8_t codes[Format::kElements];
      float scales[kGroups], mins[kGroups];
      Format::unpack_i8(block, codes, scales, mins);
      for (int i = 0; i < Format::kElements; ++i) q[i] = static_cast<uint8_t>(codes[i] + Format::kOffset);
    }
  }
};

}  // namespace redline::blocks
