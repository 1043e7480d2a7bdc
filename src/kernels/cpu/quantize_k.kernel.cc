// Quantizing to the K formats: 256 elements with scales of their own for each 16 or 32, which are quantized in turn.
// Codes are chosen again for the scales as stored (ggml: quantize_row_q4_K_ref, quantize_row_q4_K_impl, ...).
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/quantize_lanes.h"
#include "tensor/blocks/all.h"

namespace redline::REDLINE_ISA_NS {
namespace {

REDLINE_INLINE Floats sum_of_squares(const Floats* x, int count) {
  Floats sum = {};
  for (int i = 0; i < count; ++i) sum += x[i] * x[i];
  return sum;
}

/// Computes the weights of kCount elements from the importance matrix's weights, and returns their sum.
template <int kCount>
REDLINE_INLINE Floats scale_weights(const Floats* x, const Floats* given, Floats mean, Floats* w) {
  Floats sum = {};
  for (int i = 0; i < kCount; ++i) {
    w[i] = given[i] * square_root(mean + x[i] * x[i]);
    sum += w[i];
  }
  return sum;
}

/// Chooses codes from 0 to `most` for x ~ scale code - low. If the scale is zero, the codes do not change.
template <int kCount>
REDLINE_INLINE void choose_codes(const Floats* x, Floats scale, Floats low, int most, Floats* codes) {
  const Ints is_zero = scale == 0.0f;
  for (int i = 0; i < kCount; ++i)
    codes[i] = pick(is_zero, codes[i], clamp_code(nearest((x[i] + low) / scale), 0, static_cast<float>(most)));
}
/// Chooses codes from 0 to 2 most - 1 for x ~ scale (code - most).
template <int kCount>
REDLINE_INLINE void choose_signed_codes(const Floats* x, Floats scale, int most, Floats* codes) {
  const Ints is_zero = scale == 0.0f;
  const auto low = static_cast<float>(-most), high = static_cast<float>(most - 1);
  for (int i = 0; i < kCount; ++i)
    codes[i] = pick(is_zero, codes[i], clamp_code(nearest(x[i] / scale), low, high) - low);
}

/// Stores two bits of each of 256 codes, from bit `shift` on, as Q2_K, Q3_K and Q6_K (`shift` 4) do: element e is at
/// byte 32 (e / 128) + e % 32.
template <int kBytes>
REDLINE_INLINE void put_pairs(const Floats* codes, int shift, int at, BlockBytes<kBytes>& out) {
  for (int part = 0; part < 2; ++part)
    for (int i = 0; i < 32; ++i) {
      Ints bits = {};
      for (int n = 0; n < 4; ++n) bits |= ((to_int(codes[128 * part + 32 * n + i]) >> shift) & 3) << (2 * n);
      out.put(at + 32 * part + i, bits);
    }
}

// With minima
// --------------------------------------------------------------------------------------------------------------

/// Scales and minima of 256 elements: the quantized ones, and the two halves that they are multiples of.
template <int kGroups>
struct Levels {
  Floats scales[kGroups], mins[kGroups];
  Floats scale, low;
  Ints scale_half, low_half;
};

/// Quantizes scales and minima without weights: the largest scale and the largest minimum get the top level.
template <int kGroups>
REDLINE_INLINE void level_by_largest(const Floats* scales, const Floats* mins, int top, Levels<kGroups>& levels) {
  Floats max_scale = {}, max_min = {};
  for (int g = 0; g < kGroups; ++g) {
    max_scale = greater(scales[g], max_scale);
    max_min = greater(mins[g], max_min);
  }
  const auto highest = static_cast<float>(top);
  const Floats inverse_scale = pick(max_scale > 0.0f, highest / max_scale, Floats{});
  const Floats inverse_min = pick(max_min > 0.0f, highest / max_min, Floats{});
  for (int g = 0; g < kGroups; ++g) {
    levels.scales[g] = clamp_code(nearest(inverse_scale * scales[g]), 0, highest);
    levels.mins[g] = clamp_code(nearest(inverse_min * mins[g]), 0, highest);
  }
  levels.scale = round_to_half(max_scale / highest, levels.scale_half);
  levels.low = round_to_half(max_min / highest, levels.low_half);
}

/// Quantizes scales and minima with weights: searches for both; a group's weight is the sum of its elements' weights.
template <int kGroups>
REDLINE_INLINE void level_by_error(const Floats* scales, const Floats* mins, const Floats* sums, int top,
                                   Levels<kGroups>& levels) {
  levels.scale = round_to_half(search_positive<kGroups>(scales, sums, top, levels.scales), levels.scale_half);
  levels.low = round_to_half(search_positive<kGroups>(mins, sums, top, levels.mins), levels.low_half);
}

struct TwoBits {
  static constexpr int kElements = 256, kBytes = blocks::Q2_K::kBytes;
  static constexpr bool kWantsRow = false;
  REDLINE_INLINE static void encode(const LaneBlocks& block, BlockBytes<kBytes>& out) {
    Floats codes[256], scales[16], mins[16], sums[16];
    const Floats mean = sum_of_squares(block.x, 256) / 256.0f;
    for (int g = 0; g < 16; ++g) {
      const Floats* x = block.x + 16 * g;
      Floats w[16];
      if (block.w) {
        sums[g] = scale_weights<16>(x, block.w + 16 * g, mean, w);
        scales[g] = search_scale_min<16, false>(x, w, 3, {-0.9f, 0.05f, 36}, codes + 16 * g, mins[g]);
      } else {
        for (int i = 0; i < 16; ++i) w[i] = absolute(x[i]);
        scales[g] = search_scale_min<16, true>(x, w, 3, {-0.5f, 0.1f, 15}, codes + 16 * g, mins[g]);
      }
    }
    Levels<16> levels;
    if (block.w) level_by_error(scales, mins, sums, 15, levels);
    else level_by_largest(scales, mins, 15, levels);
    for (int g = 0; g < 16; ++g) {
      out.put(g, to_int(levels.scales[g]) | to_int(levels.mins[g]) << 4);
      choose_codes<16>(block.x + 16 * g, levels.scale * levels.scales[g], levels.low * levels.mins[g], 3,
                       codes + 16 * g);
    }
    put_pairs(codes, 0, 16, out);
    out.put_half(80, levels.scale_half);
    out.put_half(82, levels.low_half);
  }
};

/// Encodes Q4_K and Q5_K.
template <class Format, int kMaxCode>
struct EightGroups {
  static constexpr int kElements = 256, kBytes = Format::kBytes;
  static constexpr bool kWantsRow = false;
  static constexpr ScaleSteps kSteps = kMaxCode == 15 ? ScaleSteps{-1.0f, 0.1f, 20} : ScaleSteps{-0.5f, 0.1f, 15};

  REDLINE_INLINE static void encode(const LaneBlocks& block, BlockBytes<kBytes>& out) {
    Floats codes[256], scales[8], mins[8], sums[8];
    const Floats mean = 2.0f * sum_of_squares(block.x, 256) / 256.0f;
    for (int g = 0; g < 8; ++g) {
      const Floats* x = block.x + 32 * g;
      Floats w[32];
      if (block.w) {
        sums[g] = scale_weights<32>(x, block.w + 32 * g, mean, w);
        scales[g] = search_scale_min<32, false>(x, w, kMaxCode, {-0.9f, 0.05f, 36}, codes + 32 * g, mins[g]);
      } else {
        const Floats typical = square_root(sum_of_squares(x, 32) / 32.0f);
        for (int i = 0; i < 32; ++i) w[i] = typical + absolute(x[i]);
        scales[g] = search_scale_min<32, false>(x, w, kMaxCode, kSteps, codes + 32 * g, mins[g]);
      }
    }
    Levels<8> levels;
    if (block.w) level_by_error(scales, mins, sums, 63, levels);
    else level_by_largest(scales, mins, 63, levels);
    out.put_half(0, levels.scale_half);
    out.put_half(2, levels.low_half);
    for (int g = 0; g < 4; ++g) {  // tensor/blocks/k_scales.h
      const Ints scale = to_int(levels.scales[g]), low = to_int(levels.mins[g]);
      const Ints scale4 = to_int(levels.scales[g + 4]), low4 = to_int(levels.mins[g + 4]);
      out.put(4 + g, scale | (scale4 >> 4) << 6);
      out.put(8 + g, low | (low4 >> 4) << 6);
      out.put(12 + g, (scale4 & 15) | (low4 & 15) << 4);
    }
    for (int g = 0; g < 8; ++g)
      choose_codes<32>(block.x + 32 * g, levels.scale * levels.scales[g], levels.low * levels.mins[g], kMaxCode,
                       codes + 32 * g);
    constexpr int kNibbles = kMaxCode == 15 ? 16 : 48;
    for (int part = 0; part < 4; ++part)
      for (int i = 0; i < 32; ++i)
        out.put(kNibbles + 32 * part + i, (to_int(codes[64 * part + i]) & 15) | (to_int(codes[64 * part + 32 + i]) & 15)
                                                                                    << 4);
    if (kMaxCode == 15) return;
    for (int i = 0; i < 32; ++i) {
      Ints fifth = {};
      for (int g = 0; g < 8; ++g) fifth |= (to_int(codes[32 * g + i]) >> 4) << g;
      out.put(16 + i, fifth);
    }
  }
};

// Around zero
// --------------------------------------------------------------------------------------------------------------

/// Chooses codes from 0 to 7 for 16 elements without weights (make_q3_quants) and returns their scale: single codes are
/// changed as long as the error, weighted by the squares, falls.
REDLINE_INLINE Floats search_three_bits(const Floats* x, Floats* codes) {
  Floats size, l[16];
  const Floats peak = signed_peak<16>(x, size), inverse = -4.0f / peak;
  Floats lx = {}, l2 = {};
  for (int i = 0; i < 16; ++i) {
    l[i] = clamp_code(nearest(inverse * x[i]), -4, 3);
    const Floats w = x[i] * x[i];
    lx += w * x[i] * l[i];
    l2 += w * l[i] * l[i];
  }
  for (int turn = 0; turn < 5; ++turn) {
    Ints changed = {};
    for (int i = 0; i < 16; ++i) {
      const Floats w = x[i] * x[i];
      const Floats without_lx = lx - w * x[i] * l[i], without_l2 = l2 - w * l[i] * l[i];
      const Floats moved = clamp_code(nearest(x[i] * without_l2 / without_lx), -4, 3);
      const Floats moved_lx = without_lx + w * x[i] * moved, moved_l2 = without_l2 + w * moved * moved;
      const Ints is_better =
          (without_lx > 0.0f) & (moved != l[i]) & (moved_l2 > 0.0f) & (moved_lx * moved_lx * l2 > lx * lx * moved_l2);
      l[i] = pick(is_better, moved, l[i]);
      lx = pick(is_better, moved_lx, lx);
      l2 = pick(is_better, moved_l2, l2);
      changed |= is_better;
    }
    if (!any_lane(changed)) break;
  }
  const Ints is_zero = size < kMinGroup;
  for (int i = 0; i < 16; ++i) codes[i] = pick(is_zero, Floats{}, l[i] + 4.0f);
  return pick(is_zero, Floats{}, lx / l2);
}

struct ThreeBits {
  static constexpr int kElements = 256, kBytes = blocks::Q3_K::kBytes;
  static constexpr bool kWantsRow = false;
  REDLINE_INLINE static void encode(const LaneBlocks& block, BlockBytes<kBytes>& out) {
    Floats codes[256], scales[16], levels[16], scale;
    Ints half;
    if (block.w) {
      Floats sums[16];
      const Floats mean = 2.0f * sum_of_squares(block.x, 256) / 256.0f;
      for (int g = 0; g < 16; ++g) {
        Floats w[16];
        sums[g] = scale_weights<16>(block.x + 16 * g, block.w + 16 * g, mean, w);
        scales[g] = search_scale<16>(block.x + 16 * g, w, 4, codes + 16 * g);
      }
      scale = round_to_half(search_scale<16>(scales, sums, 32, levels), half);
    } else {
      Floats most = {}, size = {};
      for (int g = 0; g < 16; ++g) {
        scales[g] = search_three_bits(block.x + 16 * g, codes + 16 * g);
        const Ints is_more = absolute(scales[g]) > size;
        size = pick(is_more, absolute(scales[g]), size);
        most = pick(is_more, scales[g], most);
      }
      const Ints is_zero = most == 0.0f;
      const Floats inverse = -32.0f / most;
      for (int g = 0; g < 16; ++g)
        levels[g] = pick(is_zero, Floats{}, clamp_code(nearest(inverse * scales[g]), -32, 31) + 32.0f);
      scale = round_to_half(pick(is_zero, Floats{}, 1.0f / inverse), half);
    }
    for (int g = 0; g < 16; ++g)
      choose_signed_codes<16>(block.x + 16 * g, scale * (levels[g] - 32.0f), 4, codes + 16 * g);
    for (int i = 0; i < 32; ++i) {
      Ints high = {};
      for (int n = 0; n < 8; ++n) high |= (to_int(codes[32 * n + i]) >> 2) << n;
      out.put(i, high);
    }
    put_pairs(codes, 0, 32, out);
    for (int g = 0; g < 8; ++g) out.put(96 + g, (to_int(levels[g]) & 15) | (to_int(levels[g + 8]) & 15) << 4);
    for (int g = 0; g < 4; ++g) {
      Ints high = {};
      for (int n = 0; n < 4; ++n) high |= (to_int(levels[4 * n + g]) >> 4) << (2 * n);
      out.put(104 + g, high);
    }
    out.put_half(108, half);
  }
};

struct SixBits {
  static constexpr int kElements = 256, kBytes = blocks::Q6_K::kBytes;
  static constexpr bool kWantsRow = false;
  REDLINE_INLINE static void encode(const LaneBlocks& block, BlockBytes<kBytes>& out) {
    Floats codes[256], scales[16], most = {}, size = {};
    for (int g = 0; g < 16; ++g) {
      scales[g] = search_scale<16>(block.x + 16 * g, block.w ? block.w + 16 * g : nullptr, 32, codes + 16 * g);
      const Ints is_more = absolute(scales[g]) > size;
      size = pick(is_more, absolute(scales[g]), size);
      most = pick(is_more, scales[g], most);
    }
    const Ints is_zero = size < kMinGroup;
    const Floats inverse = -128.0f / most;
    Ints half;
    const Floats scale = round_to_half(pick(is_zero, Floats{}, 1.0f / inverse), half);
    for (int g = 0; g < 16; ++g) {
      const Floats level = pick(is_zero, Floats{}, lesser(nearest(inverse * scales[g]), splat(127)));
      out.put(192 + g, to_int(level) & 255);
      choose_signed_codes<16>(block.x + 16 * g, scale * level, 32, codes + 16 * g);
    }
    for (int i = 0; i < 256; ++i) codes[i] = pick(is_zero, Floats{}, codes[i]);
    for (int part = 0; part < 2; ++part)
      for (int i = 0; i < 64; ++i)
        out.put(64 * part + i, (to_int(codes[128 * part + i]) & 15) | (to_int(codes[128 * part + 64 + i]) & 15) << 4);
    put_pairs(codes, 4, 128, out);
    out.put_half(208, half);
  }
};

}  // namespace

void fill_quantize_k(CpuKernels& table) {
  const auto set = [&](DType type, QuantizeFn function) { table.quantize[static_cast<int>(type)] = function; };
  set(DType::kQ2_K, quantize<TwoBits>);
  set(DType::kQ3_K, quantize<ThreeBits>);
  set(DType::kQ4_K, quantize<EightGroups<blocks::Q4_K, 15>>);
  set(DType::kQ5_K, quantize<EightGroups<blocks::Q5_K, 31>>);
  set(DType::kQ6_K, quantize<SixBits>);
}

}  // namespace redline::REDLINE_ISA_NS
