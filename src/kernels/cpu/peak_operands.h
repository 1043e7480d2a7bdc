// Operands of the tile unit's peak loops. They are random because bfloat16 products of zeros run at a higher clock, a
// fifth faster, which no real model reaches.
#pragma once

#include <cstdint>

namespace redline::REDLINE_ISA_NS {

struct PeakOperands {
  alignas(64) uint16_t tiles[4][512];

  /// Fills the tiles. Each 16-bit value has the bits `always` and, each with probability 1/2, the bits `random`.
  PeakOperands(uint16_t always, uint16_t random) {
    uint32_t state = 1;
    for (auto& tile : tiles)
      for (uint16_t& half : tile) {
        state = state * 1664525 + 1013904223;  // Numerical Recipes
        half = static_cast<uint16_t>(always | ((state >> 16) & random));
      }
  }
};

}  // namespace redline::REDLINE_ISA_NS
