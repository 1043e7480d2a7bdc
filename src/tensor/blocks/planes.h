// Layout of the codes of 16 rows x 32 elements in a packed row panel, by code width. Line l, 64 bytes, holds elements 4
// l .. 4 l + 3 of the 16 rows, row after row: the operand order of vpdpbusd and of the int8 tiles. Codes narrower than
// a byte are split into planes in which a byte position holds the same row and element of several lines, so that a
// shift and a mask give operands: nothing moves across bytes.
#pragma once

#include "tensor/blocks/lanes.h"

namespace redline::blocks {

static constexpr int kStepElements = 32;
static constexpr int kStepLines = kStepElements / 4;

/// Planes of 8-bit codes. Every plane set has kBytes per step of 32 elements; line(p, l, part) returns codes,
/// zero-extended; pack(q, p) writes them from 8 lines of one code per byte.
struct Planes8 {
  static constexpr int kBytes = 512;
  REDLINE_BLOCK_INLINE Bytes line(const uint8_t* p, int l, int part) { return load_part(p + l * kLineBytes, part); }
  REDLINE_BLOCK_INLINE void pack(const uint8_t* __restrict q, uint8_t* __restrict p) { __builtin_memcpy(p, q, kBytes); }
};

/// Planes of 4-bit codes: lines 2 j and 2 j + 1 are the low and high nibbles of 64 bytes.
struct Planes4 {
  static constexpr int kBytes = 256;
  REDLINE_BLOCK_INLINE Bytes line(const uint8_t* p, int l, int part) {
    const Bytes two = load_part(p + l / 2 * kLineBytes, part);
    return (l % 2 ? shift_right(two, 4) : two) & 15;
  }
  /// Reads lines l and l + 1, l even.
  REDLINE_BLOCK_INLINE void two_lines(const uint8_t* p, int l, int part, Bytes& low, Bytes& high) {
    const Bytes two = load_once(p + l / 2 * kLineBytes, part);
    low = two & 15;
    high = shift_right(two, 4) & 15;
  }
  REDLINE_BLOCK_INLINE void pack(const uint8_t* __restrict q, uint8_t* __restrict p) {
    for (int j = 0; j < kBytes / kLineBytes; ++j)
      for (int part = 0; part < kParts; ++part) {
        const uint8_t* two = q + 2 * j * kLineBytes;
        const Bytes low = load_part(two, part) & 15, high = load_part(two + kLineBytes, part) & 15;
        store_part(p + j * kLineBytes, part, low | shift_left(high, 4));
      }
  }
};

/// Packs bits kBit and kBit + 1 of lines 4 j .. 4 j + 3 as the bit pairs, lowest first, of 64 bytes.
template <int kBit>
REDLINE_BLOCK_INLINE void pack_pairs(const uint8_t* __restrict q, uint8_t* __restrict p) {
  for (int j = 0; j < kStepLines / 4; ++j)
    for (int part = 0; part < kParts; ++part) {
      Bytes bits = {};
      for (int l = 0; l < 4; ++l) {
        const Bytes pair = load_part(q + (4 * j + l) * kLineBytes, part) & static_cast<uint8_t>(3 << kBit);
        bits |= 2 * l >= kBit ? shift_left(pair, 2 * l - kBit) : shift_right(pair, kBit - 2 * l);
      }
      store_part(p + j * kLineBytes, part, bits);
    }
}

/// Planes of 2-bit codes: lines 4 j .. 4 j + 3 are the bit pairs, lowest first, of 64 bytes.
struct Planes2 {
  static constexpr int kBytes = 128;
  REDLINE_BLOCK_INLINE Bytes line(const uint8_t* p, int l, int part) {
    return shift_right(load_part(p + l / 4 * kLineBytes, part), 2 * (l % 4)) & 3;
  }
  REDLINE_BLOCK_INLINE void pack(const uint8_t* __restrict q, uint8_t* __restrict p) { pack_pairs<0>(q, p); }
};

/// A plane of bit kBit of the codes: line l at bit l of 64 bytes.
template <int kBit>
struct BitPlane {
  static constexpr int kBytes = 64;
  REDLINE_BLOCK_INLINE Bytes line(const uint8_t* p, int l, int part) {
    const Bytes bits = load_part(p, part);
    return (l <= kBit ? shift_left(bits, kBit - l) : shift_right(bits, l - kBit)) & static_cast<uint8_t>(1 << kBit);
  }
  REDLINE_BLOCK_INLINE void pack(const uint8_t* __restrict q, uint8_t* __restrict p) {
    for (int part = 0; part < kParts; ++part) {
      Bytes bits = {};
      for (int l = 0; l < kStepLines; ++l) {
        const Bytes bit = load_part(q + l * kLineBytes, part) & static_cast<uint8_t>(1 << kBit);
        bits |= l >= kBit ? shift_left(bit, l - kBit) : shift_right(bit, kBit - l);
      }
      store_part(p, part, bits);
    }
  }
};

/// A plane of bits 4 and 5 of the codes, laid out as Planes2.
struct HighPairs {
  static constexpr int kBytes = 128;
  REDLINE_BLOCK_INLINE Bytes line(const uint8_t* p, int l, int part) {
    const Bytes bits = load_part(p + l / 4 * kLineBytes, part);
    return (l % 4 < 2 ? shift_left(bits, 4 - 2 * (l % 4)) : shift_right(bits, 2 * (l % 4) - 4)) & 48;
  }
  REDLINE_BLOCK_INLINE void pack(const uint8_t* __restrict q, uint8_t* __restrict p) { pack_pairs<4>(q, p); }
};

template <class Low, class High>
struct TwoPlanes {
  static constexpr int kBytes = High::kBytes + Low::kBytes;
  REDLINE_BLOCK_INLINE Bytes line(const uint8_t* p, int l, int part) {
    return High::line(p, l, part) | Low::line(p + High::kBytes, l, part);
  }
  REDLINE_BLOCK_INLINE void two_lines(const uint8_t* p, int l, int part, Bytes& low, Bytes& high) requires requires {
    Low::two_lines(p, l, part, low, high);
  }
  {
    Low::two_lines(p + High::kBytes, l, part, low, high);
    low |= High::line(p, l, part);
    high |= High::line(p, l + 1, part);
  }
  REDLINE_BLOCK_INLINE void pack(const uint8_t* __restrict q, uint8_t* __restrict p) {
    High::pack(q, p);
    Low::pack(q, p + High::kBytes);
  }
};
using Planes3 = TwoPlanes<Planes2, BitPlane<2>>;
using Planes5 = TwoPlanes<Planes4, BitPlane<4>>;
using Planes6 = TwoPlanes<Planes4, HighPairs>;

}  // namespace redline::blocks
