// Decodes packed weights: row panels of 16 rows (tensor/packed_weight.h), the order that CPU kernels read too. A panel
// is an A fragment of a tensor core product with its columns in another order (fragment.h), so one packing serves all
// devices. There is a decoder for each kind of code planes (tensor/blocks/planes.h) and of heads (heads.h), not for
// each format.
#pragma once

#include "kernels/tiles/warp.h"

namespace redline::tiles {

/// Kinds of code planes. The first three are plain types; kI8 are signed codes.
enum class Planes : uint8_t { kF32, kF16, kBF16, k8, k4, k2, k3, k5, k6, kI8 };
enum class Head : uint8_t { kNone, kHalf, kHalfPair, kExponent, kSubScale, kScaleMin, kNibbleScaleMin };

/// The properties of a weight type that kernels need; backends/tiles/panel_format.cc derives them from the format's
/// description.
struct PanelFormat {
  Planes planes;
  Head head;
  uint8_t has_mins, has_table;
  int32_t elements;    ///< elements of K in a unit: a block, or a line of 64 bytes
  int32_t unit_bytes;  ///< bytes of a unit of 16 rows
  int32_t head_bytes, step_bytes;
  int32_t group;   ///< elements that share a scale: 16 or 32
  int32_t offset;  ///< code = unsigned code - offset
  /// Bytes after the units of a panel: a float32 for each of its rows, which multiplies the row.
  int32_t row_scale_bytes;
  uint8_t table[16];

  TILE_CONST_FN bool is_plain() const { return planes <= Planes::kBF16; }
  /// Returns true for codes of 8 bits with a scale for each row; products may then round x to int8 too.
  TILE_CONST_FN bool is_i8() const { return planes == Planes::kI8; }
};

#ifdef __CUDACC__
TILE_FN uint32_t look_up(const uint8_t* table, uint32_t index) { return table[index]; }
#else
inline Lanes<uint32_t> look_up(const uint8_t* table, const Lanes<uint32_t>& index) {
  return detail::map([table](uint32_t i) -> uint32_t { return table[i]; }, index);
}
#endif

/// Returns the scales of some rows of a panel of `panel_bytes`, scales included; 1 where the format has none.
TILE_FN Lanes<float> row_scales(const PanelFormat& f, const uint8_t* panel, int panel_bytes, const Lanes<int>& row,
                                const Lanes<bool>& mask, Warp& w) {
  if (f.row_scale_bytes == 0) return 1.0f;
  return w.load(reinterpret_cast<const float*>(panel + (panel_bytes - f.row_scale_bytes)), row, mask);
}

/// Reads a panel through words(offset), which returns the 4 bytes at a multiple of 4. All offsets are by lane.
template <class Words>
class Panel {
 public:
  TILE_FN Panel(const PanelFormat& format, const Words& words) : f_(format), words_(words) {}

  /// Returns elements 4 `line` .. + 3 of a step of 32, of one row, as unsigned codes in the bytes of a word.
  TILE_FN Lanes<uint32_t> codes(const Lanes<int>& unit, int step, const Lanes<int>& row, const Lanes<int>& line) const {
    const Lanes<int> at = unit + (f_.head_bytes + step * f_.step_bytes);
    Lanes<uint32_t> q = 0u;
    switch (f_.planes) {
      case Planes::k8: q = words_(at + line * 64 + row * 4); break;
      case Planes::kI8: q = words_(at + line * 64 + row * 4) ^ 0x80808080u; break;
      case Planes::k4: q = nibbles(at, row, line); break;
      case Planes::k2: q = pairs(at, row, line); break;
      case Planes::k3: q = bit<2>(at, row, line) | pairs(at + 64, row, line); break;
      case Planes::k5: q = bit<4>(at, row, line) | nibbles(at + 64, row, line); break;
      case Planes::k6: q = (pairs(at, row, line) << 4u) | nibbles(at + 128, row, line); break;
      default: break;
    }
    if (!f_.has_table) return q;
    Lanes<uint32_t> found = 0u;
    for (uint32_t shift = 0; shift < 32; shift += 8) found = found | (look_up(f_.table, (q >> shift) & 15u) << shift);
    return found;
  }
  /// Returns code `index` of 4 as a number.
  TILE_FN Lanes<float> number(const Lanes<uint32_t>& codes, int index) const {
    return convert<float>(convert<int>((codes >> static_cast<uint32_t>(8 * index)) & 255u) - f_.offset);
  }
  TILE_FN Lanes<float> scale(const Lanes<int>& unit, const Lanes<int>& row, const Lanes<int>& group) const {
    switch (f_.head) {
      case Head::kHalf:
      case Head::kHalfPair: return half(unit + row * 2);
      case Head::kExponent: return exponent(byte(unit + row));
      case Head::kSubScale: {
        const Lanes<uint32_t> s = byte(unit + row + (group * 16 + 32));
        return half(unit + row * 2) * convert<float>(convert<int>(s ^ 128u) - 128);
      }
      case Head::kScaleMin: return half(unit + row * 2) * unsigned_number(byte(unit + row + (group * 32 + 64)));
      case Head::kNibbleScaleMin:
        return half(unit + row * 2) * unsigned_number(byte(unit + row + (group * 16 + 64)) & 15u);
      default: return 1.0f;
    }
  }
  TILE_FN Lanes<float> min(const Lanes<int>& unit, const Lanes<int>& row, const Lanes<int>& group) const {
    const Lanes<float> m = half(unit + row * 2 + 32);
    switch (f_.head) {
      case Head::kHalfPair: return -m;
      case Head::kScaleMin: return m * unsigned_number(byte(unit + row + (group * 32 + 80)));
      case Head::kNibbleScaleMin: return m * unsigned_number(byte(unit + row + (group * 16 + 64)) >> 4u);
      default: return 0.0f;
    }
  }
  /// Decodes elements 4 `quad` .. + 3 of a row, counted from the first unit that `words` reads, as float32: scale *
  /// code - min, each rounded once, as the format defines it. For a plain type, lines from `num_lines` on are zero.
  TILE_FN void quad(const Lanes<int>& row, const Lanes<int>& quad, int num_lines, Lanes<float> (&out)[4]) const {
    if (f_.is_plain()) return plain_quad(row, quad, num_lines, out);
    const Lanes<int> element = quad * 4, within = element % Lanes<int>(f_.elements);
    const Lanes<int> unit = element / Lanes<int>(f_.elements) * f_.unit_bytes;
    const Lanes<int> at_step = within / 32 * f_.step_bytes;
    const Lanes<uint32_t> q = codes(unit + at_step, 0, row, within % 32 / 4);
    const Lanes<int> group = within / Lanes<int>(f_.group);
    const Lanes<float> s = scale(unit, row, group), m = f_.has_mins ? min(unit, row, group) : Lanes<float>(0.0f);
    for (int i = 0; i < 4; ++i) {
      const Lanes<float> product = s * number(q, i);
      out[i] = f_.has_mins ? product - m : product;
    }
  }
  /// Returns the word of a line of a plain type, zero from `num_lines` on.
  TILE_FN Lanes<uint32_t> plain_word(const Lanes<int>& row, const Lanes<int>& line, int num_lines) const {
    const Lanes<bool> stored = line < Lanes<int>(num_lines);
    return select(stored, words_(select(stored, line, Lanes<int>(0)) * 64 + row * 4), Lanes<uint32_t>(0u));
  }

 private:
  TILE_FN Lanes<uint32_t> nibbles(const Lanes<int>& at, const Lanes<int>& row, const Lanes<int>& line) const {
    return (words_(at + line / 2 * 64 + row * 4) >> convert<uint32_t>(line % 2 * 4)) & 0x0f0f0f0fu;
  }
  TILE_FN Lanes<uint32_t> pairs(const Lanes<int>& at, const Lanes<int>& row, const Lanes<int>& line) const {
    return (words_(at + line / 4 * 64 + row * 4) >> convert<uint32_t>(line % 4 * 2)) & 0x03030303u;
  }
  /// Returns bit kBit of the codes.
  template <int kBit>
  TILE_FN Lanes<uint32_t> bit(const Lanes<int>& at, const Lanes<int>& row, const Lanes<int>& line) const {
    return ((words_(at + row * 4) >> convert<uint32_t>(line)) & 0x01010101u) << uint32_t{kBit};
  }
  TILE_FN Lanes<uint32_t> byte(const Lanes<int>& offset) const {
    return (words_(offset / 4 * 4) >> convert<uint32_t>(offset % 4 * 8)) & 255u;
  }
  TILE_FN Lanes<float> half(const Lanes<int>& offset) const {
    return f16_to_float((words_(offset / 4 * 4) >> convert<uint32_t>(offset % 4 * 8)) & 0xffffu);
  }
  TILE_FN Lanes<float> unsigned_number(const Lanes<uint32_t>& x) const { return convert<float>(convert<int>(x)); }
  /// Returns 2^(e - 128); subnormal below e = 2.
  TILE_FN Lanes<float> exponent(const Lanes<uint32_t>& e) const {
    const Lanes<bool> is_small = e < Lanes<uint32_t>(2u);
    // Both values are computed, and no shift may be as wide as the number. Where the first one is used, e is 0 or 1.
    return bits_to_float(select(is_small, Lanes<uint32_t>(0x00200000u) << (e & 1u), (e - 1u) << 23u));
  }
  TILE_FN void plain_quad(const Lanes<int>& row, const Lanes<int>& quad, int num_lines, Lanes<float> (&out)[4]) const {
    if (f_.planes == Planes::kF32) {
      for (int i = 0; i < 4; ++i) out[i] = bits_to_float(plain_word(row, quad * 4 + i, num_lines));
      return;
    }
    for (int i = 0; i < 4; i += 2) {
      const Lanes<uint32_t> two = plain_word(row, quad * 2 + i / 2, num_lines);
      const bool is_f16 = f_.planes == Planes::kF16;
      out[i] = is_f16 ? f16_to_float(two & 0xffffu) : bf16_to_float(two & 0xffffu);
      out[i + 1] = is_f16 ? f16_to_float(two >> 16u) : bf16_to_float(two >> 16u);
    }
  }

  const PanelFormat& f_;
  const Words& words_;
};

}  // namespace redline::tiles
