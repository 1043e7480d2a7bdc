// Packed layout of the up matrices B of LoRA adapters (W + scale B A) in 8 bits. The kernel linear[kI8] multiplies them
// (kernels/cpu/linear/lora_expand.inc). A row has `rank` elements, and each 16 of them share a scale, which takes 9
// bits an element in place of bfloat16's 16. The size matters because a step with many adapters takes as long as
// reading their matrices.
//
// up[n, r] = scale * code, code in [-127, 127]. Row panels of 16 rows follow each other; a panel is its groups of 16
// ranks, and a group is 16 scales in bfloat16 and then lines of 16 rows x 4 ranks of code + 128. The last group has as
// many lines as its ranks need.
#pragma once

#include <cstdint>

#include "tensor/row_panel.h"

namespace redline {

inline constexpr int64_t kLoraGroup = 16, kLoraLineRanks = 4;
inline constexpr int64_t kLoraLineBytes = kRowPanelRows * kLoraLineRanks;
inline constexpr int64_t kLoraScaleBytes = kRowPanelRows * 2;

/// Returns the number of lines of the group that begins at a rank.
constexpr int64_t lora_group_lines(int64_t rank, int64_t begin) {
  const int64_t ranks = rank - begin < kLoraGroup ? rank - begin : kLoraGroup;
  return (ranks + kLoraLineRanks - 1) / kLoraLineRanks;
}
constexpr int64_t lora_panel_bytes(int64_t rank) {
  return (rank + kLoraGroup - 1) / kLoraGroup * kLoraScaleBytes +
         (rank + kLoraLineRanks - 1) / kLoraLineRanks * kLoraLineBytes;
}
/// Returns the bytes of a packed matrix with `rows` rows, padded to whole row panels.
constexpr int64_t lora_up_bytes(int64_t rows, int64_t rank) {
  return (rows + kRowPanelRows - 1) / kRowPanelRows * lora_panel_bytes(rank);
}

/// Rounds `up` [rows, rank], row-major, to the nearest codes. A group with a value that is not finite becomes NaN; a
/// group below 2^-100 becomes zeros.
void pack_lora_up(const float* up, int64_t rows, int64_t rank, uint8_t* packed);
/// Unpacks to float32, exactly.
void unpack_lora_up(const uint8_t* packed, int64_t rows, int64_t rank, float* up);

}  // namespace redline
