// Searches for the scales of block formats, several blocks at a time: lane i of every vector belongs to block i, so
// each lane does what a scalar loop over one block would do, in the same order. The results are therefore the same on
// every instruction set, and those of ggml's own quantizer (ggml-quants.c of the llama.cpp project, whose searches
// these are).
#pragma once

#include "kernels/cpu/quantize.h"
#include "kernels/cpu/simd.h"
#include "tensor/blocks/lanes.h"

#define REDLINE_INLINE_LAMBDA __attribute__((always_inline))

namespace redline::REDLINE_ISA_NS {

using blocks::Floats;
using Ints [[gnu::vector_size(blocks::kVecBytes)]] = int32_t;
static_assert(kWidth == blocks::kPartRows);

/// Maximum magnitude below which a group is all zeros (GROUP_MAX_EPS of ggml).
inline constexpr float kMinGroup = 1e-15f;

REDLINE_INLINE Floats splat(float value) { return value - Floats{}; }
REDLINE_INLINE Floats pick(Ints mask, Floats a, Floats b) { return mask ? a : b; }
REDLINE_INLINE Ints pick(Ints mask, Ints a, Ints b) { return mask ? a : b; }
REDLINE_INLINE Floats lesser(Floats a, Floats b) { return pick(a < b, a, b); }
REDLINE_INLINE Floats greater(Floats a, Floats b) { return pick(a > b, a, b); }
REDLINE_INLINE Floats absolute(Floats a) { return (Floats)((Ints)a & 0x7fffffff); }
/// Rounds to the nearest integer, ties to even; |a| < 2^22.
REDLINE_INLINE Floats nearest(Floats a) { return (a + 12582912.0f) - 12582912.0f; }
REDLINE_INLINE Floats clamp_code(Floats a, float low, float high) {
  return greater(lesser(a, splat(high)), splat(low));
}
REDLINE_INLINE Ints to_int(Floats a) { return __builtin_convertvector(a, Ints); }
REDLINE_INLINE Floats to_float(Ints a) { return __builtin_convertvector(a, Floats); }
/// Rounds halves away from zero, as roundf.
REDLINE_INLINE Floats round_away(Floats a) {
  const Floats whole = to_float(to_int(a)), rest = a - whole;
  return whole + pick(rest >= 0.5f, splat(1), pick(rest <= -0.5f, splat(-1), Floats{}));
}
REDLINE_INLINE Floats square_root(Floats a) {
#if defined(__AVX512F__)
  return (Floats)_mm512_sqrt_ps((__m512)a);
#elif defined(__AVX2__)
  return (Floats)_mm256_sqrt_ps((__m256)a);
#else
  for (int i = 0; i < kWidth; ++i) a[i] = __builtin_sqrtf(a[i]);
  return a;
#endif
}
REDLINE_INLINE bool any_lane(Ints mask) {
  int32_t any = 0;
  for (int i = 0; i < kWidth; ++i) any |= mask[i];
  return any != 0;
}

/// Returns floats as a half stores them, and the halves' bits.
REDLINE_INLINE Floats round_to_half(Floats a, Ints& bits) {
  Floats stored;
  for (int i = 0; i < kWidth; ++i) {
    const uint16_t half = f32_to_f16(a[i]);
    bits[i] = half;
    stored[i] = blocks::half_to_float(half);
  }
  return stored;
}

/// The bytes of kWidth blocks while they are computed: byte b of all blocks is one row.
template <int kBytes>
struct BlockBytes {
  alignas(64) uint8_t rows[kBytes][kWidth];

  REDLINE_INLINE void put(int at, Ints value) {
    using Narrow [[gnu::vector_size(kWidth)]] = uint8_t;
    const Narrow narrow = __builtin_convertvector(value, Narrow);
    __builtin_memcpy(rows[at], &narrow, kWidth);
  }
  REDLINE_INLINE void put_half(int at, Ints bits) {
    put(at, bits & 255);
    put(at + 1, (bits >> 8) & 255);
  }
  REDLINE_INLINE void store(uint8_t* out, int64_t count) const {
    for (int64_t lane = 0; lane < count; ++lane)
      for (int b = 0; b < kBytes; ++b) out[lane * kBytes + b] = rows[b][lane];
  }
};

/// Returns the first x with the largest magnitude, sign included, and sets `size` to that magnitude.
template <int kCount>
REDLINE_INLINE Floats signed_peak(const Floats* x, Floats& size) {
  Floats peak = {};
  size = Floats{};
  for (int i = 0; i < kCount; ++i) {
    const Floats own = absolute(x[i]);
    const Ints is_more = own > size;
    size = pick(is_more, own, size);
    peak = pick(is_more, x[i], peak);
  }
  return peak;
}

/// Finds x ~ scale (code - kMaxCode), codes 0 .. 2 kMaxCode - 1 (make_qx_quants with rmse_type 1): the best of 19
/// scales by the weighted error. `w` nullptr: x^2. A group of zeros has scale 0 and codes 0.
template <int kCount>
REDLINE_INLINE Floats search_scale(const Floats* x, const Floats* w, int most, Floats* codes) {
  Floats size;
  const Floats peak = signed_peak<kCount>(x, size);
  const auto low = static_cast<float>(-most), high = static_cast<float>(most - 1);
  const auto sums = [&](Floats inverse, Floats& lx, Floats& l2) REDLINE_INLINE_LAMBDA {
    lx = l2 = Floats{};
    for (int i = 0; i < kCount; ++i) {
      const Floats l = clamp_code(nearest(inverse * x[i]), low, high);
      const Floats weight = w ? w[i] : x[i] * x[i];
      lx += weight * x[i] * l;
      l2 += weight * l * l;
    }
  };
  Floats best_inverse = low / peak, lx, l2;
  sums(best_inverse, lx, l2);
  Floats scale = pick(l2 != 0.0f, lx / l2, Floats{}), best = scale * lx;
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    const Floats inverse = -(static_cast<float>(most) + 0.1f * static_cast<float>(step)) / peak;
    sums(inverse, lx, l2);
    const Ints is_better = (l2 > 0.0f) & (lx * lx > best * l2);
    best_inverse = pick(is_better, inverse, best_inverse);
    scale = pick(is_better, lx / l2, scale);
    best = pick(is_better, scale * lx, best);
  }
  const Ints is_zero = size < kMinGroup;
  for (int i = 0; i < kCount; ++i)
    codes[i] = pick(is_zero, Floats{}, clamp_code(nearest(best_inverse * x[i]), low, high) - low);
  return pick(is_zero, Floats{}, scale);
}

/// The scales that a search for x ~ scale code - min tries, codes 0 .. most, min >= 0 (make_qkx2_quants,
/// make_qkx3_quants). It takes the best of `steps` + 2 scales by weighted error, squared or (kAbsolute) absolute.
struct ScaleSteps {
  float first, delta;
  int steps;
};
template <int kCount, bool kAbsolute>
REDLINE_INLINE Floats search_scale_min(const Floats* x, const Floats* w, int most, ScaleSteps steps, Floats* codes,
                                       Floats& minimum) {
  Floats low = x[0], high = x[0], sum_w = w[0], sum_x = sum_w * x[0];
  for (int i = 1; i < kCount; ++i) {
    low = lesser(x[i], low);
    high = greater(x[i], high);
    sum_w += w[i];
    sum_x += w[i] * x[i];
  }
  low = pick(low > 0.0f, Floats{}, low);
  const Ints is_flat = high <= low;
  const auto top = static_cast<float>(most);
  const auto error_of = [&](const Floats* l, Floats scale, Floats base) REDLINE_INLINE_LAMBDA {
    Floats error = {};
    for (int i = 0; i < kCount; ++i) {
      const Floats difference = scale * l[i] + base - x[i];
      error += w[i] * (kAbsolute ? absolute(difference) : difference * difference);
    }
    return error;
  };
  Floats l[kCount];
  Floats best_inverse = top / (high - low), best_low = low, scale = 1.0f / best_inverse;
  for (int i = 0; i < kCount; ++i) l[i] = clamp_code(nearest(best_inverse * (x[i] - low)), 0, top);
  Floats best_error = error_of(l, scale, low);
  const Floats first_low = low;
  for (int step = 0; step <= steps.steps; ++step) {
    const Floats inverse = (steps.first + steps.delta * static_cast<float>(step) + top) / (high - low);
    Floats sum_l = {}, sum_l2 = {}, sum_xl = {};
    for (int i = 0; i < kCount; ++i) {
      l[i] = clamp_code(nearest(inverse * (x[i] - low)), 0, top);
      const Floats wl = w[i] * l[i];
      sum_l += wl;
      sum_l2 += wl * l[i];
      sum_xl += wl * x[i];
    }
    const Floats determinant = sum_w * sum_l2 - sum_l * sum_l;
    Floats this_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    Floats this_low = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    const Ints is_positive = this_low > 0.0f;
    this_scale = pick(is_positive, sum_xl / sum_l2, this_scale);
    this_low = pick(is_positive, Floats{}, this_low);
    const Floats error = error_of(l, this_scale, this_low);
    const Ints is_better = (determinant > 0.0f) & (error < best_error);
    best_error = pick(is_better, error, best_error);
    best_inverse = pick(is_better, inverse, best_inverse);
    best_low = pick(is_better, low, best_low);
    scale = pick(is_better, this_scale, scale);
    low = pick(is_better, this_low, low);
  }
  for (int i = 0; i < kCount; ++i)
    codes[i] = pick(is_flat, Floats{}, clamp_code(nearest(best_inverse * (x[i] - best_low)), 0, top));
  minimum = -pick(is_flat, first_low, low);
  return pick(is_flat, Floats{}, scale);
}

/// Finds x ~ scale code for x >= 0, codes 0 .. most (make_qp_quants): a search, after which single codes are moved
/// while the weighted error falls.
template <int kCount>
REDLINE_INLINE Floats search_positive(const Floats* x, const Floats* w, int most, Floats* codes) {
  const auto top = static_cast<float>(most);
  Floats high = {};
  for (int i = 0; i < kCount; ++i) high = greater(high, x[i]);
  const Ints is_zero = high == 0.0f;
  const auto error_of = [&](Floats inverse, bool limits) REDLINE_INLINE_LAMBDA {
    const Floats scale = 1.0f / inverse;
    Floats error = {};
    for (int i = 0; i < kCount; ++i) {
      Floats l = nearest(inverse * x[i]);
      if (limits) l = lesser(l, splat(top));
      const Floats difference = x[i] - scale * l;
      error += w[i] * difference * difference;
    }
    return error;
  };
  Floats best_inverse = top / high, best = error_of(best_inverse, false);
  for (int step = -4; step <= 4; ++step) {
    if (step == 0) continue;
    const Floats inverse = (0.1f * static_cast<float>(step) + top) / high, error = error_of(inverse, true);
    const Ints is_better = error < best;
    best = pick(is_better, error, best);
    best_inverse = pick(is_better, inverse, best_inverse);
  }
  Floats lx = {}, l2 = {};
  for (int i = 0; i < kCount; ++i) {
    codes[i] = clamp_code(nearest(best_inverse * x[i]), 0, top);
    lx += w[i] * x[i] * codes[i];
    l2 += w[i] * codes[i] * codes[i];
  }
  for (int turn = 0; turn < 5; ++turn) {
    Ints changed = {};
    for (int i = 0; i < kCount; ++i) {
      const Floats without_lx = lx - w[i] * x[i] * codes[i], without_l2 = l2 - w[i] * codes[i] * codes[i];
      const Floats moved = clamp_code(nearest(x[i] * without_l2 / without_lx), 0, top);
      const Floats moved_lx = without_lx + w[i] * x[i] * moved, moved_l2 = without_l2 + w[i] * moved * moved;
      const Ints is_better = (without_lx > 0.0f) & (without_l2 > 0.0f) & (moved != codes[i]) &
                             (moved_lx * moved_lx * l2 > lx * lx * moved_l2);
      codes[i] = pick(is_better, moved, codes[i]);
      lx = pick(is_better, moved_lx, lx);
      l2 = pick(is_better, moved_l2, l2);
      changed |= is_better;
    }
    if (!any_lane(changed)) break;
  }
  for (int i = 0; i < kCount; ++i) codes[i] = pick(is_zero, Floats{}, codes[i]);
  return pick(is_zero | (l2 <= 0.0f), Floats{}, lx / l2);
}

// Blocks of a row, kWidth at a time
// ------------------------------------------------------------------------------------

/// kWidth blocks with one lane each. `w`: weights of their columns, or nullptr. `row_mean_square`: mean square of the
/// row of each block, where weights are given.
struct LaneBlocks {
  const Floats* x;
  const Floats* w;
  Floats row_mean_square;
};

/// Loads elements [0, kCount) of kWidth sources, transposed. Adds values to `checks` that show if some are not finite.
template <int kCount, class T>
REDLINE_INLINE void load_lanes(const T* const* sources, Floats* target, Floats* checks) {
  for (int e = 0; e < kCount; e += kWidth) {
    VecF32 tile[kWidth];
    for (int lane = 0; lane < kWidth; ++lane) tile[lane] = load(sources[lane] + e, Full{});
    transpose(tile);
    for (int i = 0; i < kWidth; ++i) {
      store(reinterpret_cast<float*>(target + e + i), tile[i], Full{});
      if (checks) *checks += target[e + i] - target[e + i];
    }
  }
}

template <class T>
REDLINE_INLINE float mean_square(const T* row, int64_t count) {
  float values[kWidth], sum = 0;
  for (int64_t i = 0; i < count; i += kWidth) {  // blocks are multiples of kWidth
    store(values, load(row + i, Full{}), Full{});
    for (int k = 0; k < kWidth; ++k) sum += values[k] * values[k];
  }
  return sum / static_cast<float>(count);
}

template <class Format, class T>
REDLINE_INLINE bool quantize_rows(const QuantizeArgs& a) {
  constexpr int kElements = Format::kElements;
  const T* const x = static_cast<const T*>(a.x);
  auto* out = static_cast<uint8_t*>(a.out);
  const int64_t in_row = a.cols / kElements, count = a.rows * in_row;
  alignas(64) Floats values[kElements], weights[kElements];
  Floats checks = {};
  int64_t squared_row = -1;
  float square = 0;
  for (int64_t begin = 0; begin < count; begin += kWidth) {
    const T* sources[kWidth];
    const float* columns[kWidth];
    LaneBlocks lanes = {values, nullptr, {}};
    for (int lane = 0; lane < kWidth; ++lane) {
      const int64_t block = min_i64(begin + lane, count - 1), row = block / in_row;
      sources[lane] = x + block * kElements;
      if (!a.weights) continue;
      columns[lane] = a.weights + block % in_row * kElements;
      if (Format::kWantsRow && row != squared_row) {
        squared_row = row;
        square = mean_square(x + row * a.cols, a.cols);
      }
      lanes.row_mean_square[lane] = square;
    }
    load_lanes<kElements>(sources, values, &checks);
    if (a.weights) {
      load_lanes<kElements>(columns, weights, nullptr);
      lanes.w = weights;
    }
    BlockBytes<Format::kBytes> bytes;
    Format::encode(lanes, bytes);
    bytes.store(out + begin * Format::kBytes, min_i64(kWidth, count - begin));
  }
  return !any_lane(checks != 0.0f);
}

template <class Format>
bool quantize(const QuantizeArgs& a) {
  if (a.source == DType::kF16) return quantize_rows<Format, F16>(a);
  if (a.source == DType::kBF16) return quantize_rows<Format, BF16>(a);
  return quantize_rows<Format, float>(a);
}

}  // namespace redline::REDLINE_ISA_NS
