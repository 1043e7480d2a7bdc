// The inner loop of linear_q8: products of 256 elements of K.
#pragma once

#include "kernels/cpu/linear/linear_prefetch.h"
#include "kernels/cpu/linear/linear_q8_scales.h"

namespace redline::REDLINE_ISA_NS {
namespace {

/// The unfinished part of a LinearPrefetch. It is spread over the product: a burst would occupy the buffers of the
/// product's own loads.
struct Ahead {
  // Maximum of lines, more than memory delivers besides the product's own weights.
  static constexpr int64_t kMaxLines = 8;

  const uint8_t *at = nullptr, *end = nullptr;
  const LinearPrefetch::Piece *next = nullptr, *last = nullptr;
  int64_t lines = 0;  ///< cache lines to prefetch for every 32 elements of K

  /// Starts a LinearPrefetch. `steps`: number of calls of prefetch().
  static Ahead of(const LinearArgs& a, int64_t steps) {
    Ahead ahead;
    const auto* list = static_cast<const LinearPrefetch*>(a.end);
    if (list == nullptr || steps == 0) return ahead;
    ahead.next = list->pieces;
    ahead.last = list->pieces + list->count;
    int64_t bytes = 0;
    for (int64_t i = 0; i < list->count; ++i) bytes += list->pieces[i].bytes;
    ahead.lines = min_i64(kMaxLines, (bytes + 64 * steps - 1) / (64 * steps));
    return ahead;
  }
  REDLINE_INLINE void prefetch() {
    for (int64_t line = 0; line < lines; ++line, at += 64) {
      if (at >= end) {
        if (next == last) {
          lines = 0;
          return;
        }
        at = next->data;
        end = at + next->bytes;
        ++next;
      }
      __builtin_prefetch(at, 0, 2);
    }
  }
};

// The scales of 256 elements are read before their codes.
struct ScalesFirst {};
// The scales of a block are read together with its codes; `Head` reads them.
template <class Head>
struct ScalesBeside {};
// The scales are read by find() after the codes.
template <class Find>
struct ScalesAfter {
  Find find;
};
template <class Find>
ScalesAfter(Find) -> ScalesAfter<Find>;

/// The codes of 256 elements in packed row panels, or unpacked: lines of 32 elements (`step`) of column vector c.
template <class T, class Codes, bool kPrefetches>
struct PackedLines {
  const uint8_t* block;
  int64_t row_panel_bytes, first_step, step_bytes;
  int64_t ahead;  ///< bytes from the codes to the data that is prefetched with them
  Ahead* others;

  REDLINE_INLINE void begin_step() const { others->prefetch(); }
  REDLINE_INLINE const uint8_t* step_of(int step, int c) const {
    return block + c / kRowPanelVecs * row_panel_bytes + first_step + step * step_bytes;
  }
  REDLINE_INLINE static VecI32 operand(blocks::Bytes codes) {
    return T::kIsSigned ? bytes_i32(codes) ^ set1_i32(static_cast<int32_t>(0x80808080u)) : bytes_i32(codes);
  }
  REDLINE_INLINE void prefetch(const uint8_t* codes, int l, int c) const {
    if (!kPrefetches || c % kRowPanelVecs != 0 || l * kRowPanelRows * 4 >= Codes::kBytes) return;
    __builtin_prefetch(codes + l * kRowPanelRows * 4 + ahead, 0, 2);
    // After the scales of a small block, codes end in a cache line of their own.
    if ((l + 1) * kRowPanelRows * 4 >= Codes::kBytes) __builtin_prefetch(codes + Codes::kBytes - 1 + ahead, 0, 2);
  }
  template <class Head>
  REDLINE_INLINE VecI32 scale_beside(const ScalesBeside<Head>&, int step, int c) const {
    return bits_i32(floats_f32(Head::scale(block + step * step_bytes, 0, c)));
  }
  /// Prefetches the scales of the group whose codes are prefetched. Scales of a small block share its cache lines.
  REDLINE_INLINE void prefetch_heads(int row_panels) const {
    for (int s = 0; kPrefetches && s < row_panels; ++s)
      for (int64_t at = 0; at + 64 <= first_step; at += 64)
        __builtin_prefetch(block + s * row_panel_bytes + ahead + at, 0, 2);
  }
  REDLINE_INLINE VecI32 line(int step, int l, int c) const {
    const uint8_t* codes = step_of(step, c);
    prefetch(codes, l, c);
    return operand(Codes::line(codes, l, c % kRowPanelVecs));
  }
  REDLINE_INLINE void two_lines(int step, int l, int c, VecI32& even, VecI32& odd) const {
    if constexpr (requires(blocks::Bytes & b) { Codes::two_lines(block, 0, 0, b, b); }) {
      const uint8_t* codes = step_of(step, c);
      prefetch(codes, l, c);
      prefetch(codes, l + 1, c);
      blocks::Bytes low, high;
      Codes::two_lines(codes, l, c % kRowPanelVecs, low, high);
      even = operand(low);
      odd = operand(high);
    } else {
      even = line(step, l, c);
      odd = line(step, l + 1, c);
    }
  }
};
struct UnpackedLines {
  const uint8_t* codes;
  int64_t row_panel_bytes;

  REDLINE_INLINE void begin_step() const {}
  REDLINE_INLINE VecI32 line(int step, int l, int c) const {
    return load_i32(codes + c / kRowPanelVecs * row_panel_bytes + (step * (kQ8Step / 4) + l) * 64 +
                    c % kRowPanelVecs * kWidth * 4);
  }
  REDLINE_INLINE void two_lines(int step, int l, int c, VecI32& even, VecI32& odd) const {
    even = line(step, l, c);
    odd = line(step, l + 1, c);
  }
};

// Multiplies 256 elements of K: kRows rows of x by kRowPanels row panels. place(r, c) is the address of the float32
// sums. Scales are kept for kShifts shifts; if for one, powers has the powers of two of each row. The loops over
// registers are unrolled.
template <class T, int kShifts, int kRows, int kRowPanels, class Lines, class Place, class Reads = ScalesFirst>
REDLINE_INLINE void multiply_group(const uint8_t* const (&row)[kRows], int64_t codes_at, int64_t numbers_at,
                                   const int32_t* starts, int64_t starts_stride, const int32_t* powers,
                                   int64_t powers_stride, int steps, const Scales<T::kGroup, kShifts>* scales,
                                   bool is_first, const Lines& lines, const Place& place, const Reads& reads = {}) {
  constexpr int kCols = kRowPanels * kRowPanelVecs, kGroups = 32 / T::kGroup, kGroupLines = T::kGroup / 4;
  const auto for_all = [](const auto& body) REDLINE_LAMBDA {
    unroll<kCols>([&](auto c) REDLINE_LAMBDA { unroll<kRows>([&](auto r) REDLINE_LAMBDA { body(r, c); }); });
  };
  const auto scale_at = [&](const auto& of, auto c) REDLINE_LAMBDA { return of + c % kRowPanelVecs * kWidth; };
  // One of the two is used.
  VecI32 whole[kRows][kCols];
  VecF32 real[kRows][kCols];
  for_all([&](auto r, auto c) REDLINE_LAMBDA {
    whole[r][c] = zero_i32();
    real[r][c] = zero_f32();
  });
  constexpr bool kIsAfter = requires { reads.find(); };
  alignas(64) int32_t dots[kIsAfter ? kQ8Group / T::kGroup : 1][kRows][kCols * kWidth];
  const auto scale_dots = [&](int step, int group, const auto& dot_of, const auto& sum16_of) REDLINE_LAMBDA {
    unroll<kRows>([&](auto r) REDLINE_LAMBDA {
      const int64_t shift = kShifts > 1 ? shifts_of(row[r] + numbers_at)[step] : 0;
      const VecI32 power = kShifts > 1 ? zero_i32() : set1_i32(powers[r * powers_stride + step]);
      unroll<kCols>([&](auto c) REDLINE_LAMBDA {
        VecI32 scale;
        if constexpr (requires { lines.scale_beside(reads, step, c); }) scale = lines.scale_beside(reads, step, c);
        else scale = load_i32(scale_at(scales[c / kRowPanelVecs].scale[group * kShifts + shift], c));
        if constexpr (kShifts == 1 && T::kIsNarrow) scale = times_power(scale, power);
        else if constexpr (kShifts == 1) scale = bits_i32(bits_f32(scale) * bits_f32(power));
        if constexpr (!T::kIsNarrow) real[r][c] = fma(bits_f32(scale), to_f32(dot_of(r, c)), real[r][c]);
        else if constexpr (T::kLines16 > 1) whole[r][c] = dot2_i16(whole[r][c], sum16_of(r, c), scale);
        else whole[r][c] = dot2_i16(whole[r][c], dot_of(r, c), scale);
      });
    });
  };
  for (int step = 0; step < steps; ++step, codes_at += kQ8Step) {
    lines.begin_step();
    const auto add_group = [&](int g) REDLINE_LAMBDA {
      const int group = step * kGroups + g;
      VecI32 dot[kRows][kCols], sum16[kRows][kCols];
      unroll<kRows>([&](auto r) REDLINE_LAMBDA {
        const VecI32 start = T::kHasStart ? set1_i32(starts[r * starts_stride + group]) : zero_i32();
        unroll<kCols>([&](auto c) REDLINE_LAMBDA { dot[r][c] = start; });
      });
      const auto add_line = [&](int l, const VecI32(&w)[kCols]) REDLINE_LAMBDA {
        unroll<kRows>([&](auto r) REDLINE_LAMBDA {
          const VecI32 four = set1_i32(load_int(row[r] + codes_at + (g * kGroupLines + l) * 4));
          unroll<kCols>([&](auto c) REDLINE_LAMBDA {
            if constexpr (T::kLines16 > 1) {
              const VecI32 products = pairs_u8s8(w[c], four);
              sum16[r][c] = l % T::kLines16 == 0 ? products : add_i16(sum16[r][c], products);
              if (!T::kIsNarrow && l % T::kLines16 == T::kLines16 - 1)
                dot[r][c] = dot2_i16(dot[r][c], sum16[r][c], set1_i32(0x00010001));
            } else if constexpr (T::kIsSigned) {
              dot[r][c] = dot4_s8s8(dot[r][c], w[c], four);
            } else {
              dot[r][c] = dot4_u7s8(dot[r][c], w[c], four);
            }
          });
        });
      };
      const auto add_lines = [&](int l) REDLINE_LAMBDA {  // two lines at a time where there are registers for them
        VecI32 even[kCols], odd[kCols];
        if constexpr (kWidth == 16) {
          unroll<kCols>([&](auto c)
                            REDLINE_LAMBDA { lines.two_lines(step, g * kGroupLines + 2 * l, c, even[c], odd[c]); });
          add_line(2 * l, even);
          add_line(2 * l + 1, odd);
        } else {
          unroll<kCols>([&](auto c) REDLINE_LAMBDA { even[c] = lines.line(step, g * kGroupLines + l, c); });
          add_line(l, even);
        }
      };
      if constexpr (kWidth > 4) {
        unroll<kWidth == 16 ? kGroupLines / 2 : kGroupLines>(add_lines);
      } else {  // the baseline set does not unroll: it would take minutes to compile
        for (int l = 0; l < kGroupLines; ++l) add_lines(l);
      }
      if constexpr (kIsAfter) {
        static_assert(T::kLines16 == 1);
        for_all([&](auto r, auto c) REDLINE_LAMBDA { store(dots[group][r] + c * kWidth, dot[r][c], Full{}); });
      } else {
        scale_dots(
            step, group, [&](auto r, auto c) REDLINE_LAMBDA { return dot[r][c]; },
            [&](auto r, auto c) REDLINE_LAMBDA { return sum16[r][c]; });
      }
    };
    if constexpr (kWidth > 4) {
      unroll<kGroups>(add_group);
    } else {
      for (int g = 0; g < kGroups; ++g) add_group(g);
    }
  }
  if constexpr (kIsAfter) {
    reads.find();
    for (int group = 0; group < steps * kGroups; ++group) {
      const auto dot_of = [&](auto r, auto c) REDLINE_LAMBDA { return load_i32(dots[group][r] + c * kWidth); };
      scale_dots(group / kGroups, group, dot_of, dot_of);
    }
  }
  // Adds sums of x codes, of two weight groups at once.
  const auto add_pairs = [&](VecI32(&sum)[kRows][kCols], const auto& pairs_of) REDLINE_LAMBDA {
    constexpr auto kSumsAt = static_cast<int64_t>(T::kGroup == 32 ? __builtin_offsetof(Q8Numbers, sums32)
                                                                  : __builtin_offsetof(Q8Numbers, sums16));
    for (int p = 0; p < (steps * kGroups + 1) / 2; ++p) {
      VecI32 w[kCols];
      unroll<kCols>([&](auto c)
                        REDLINE_LAMBDA { w[c] = load_i32(scale_at(pairs_of(scales[c / kRowPanelVecs])[p], c)); });
      unroll<kRows>([&](auto r) REDLINE_LAMBDA {
        const VecI32 two = set1_i32(load_int(row[r] + numbers_at + kSumsAt + p * 4));
        unroll<kCols>([&](auto c) REDLINE_LAMBDA { sum[r][c] = dot2_i16(sum[r][c], w[c], two); });
      });
    }
  };
  VecI32 min_sum[kRows][kCols];
  if constexpr (T::kHasCorrections) add_pairs(whole, [](const auto& s) REDLINE_LAMBDA { return s.corrections; });
  if constexpr (T::kHasMins) {
    for_all([&](auto r, auto c) REDLINE_LAMBDA { min_sum[r][c] = zero_i32(); });
    add_pairs(min_sum, [](const auto& s) REDLINE_LAMBDA { return s.mins; });
  }
  for_all([&](auto r, auto c) REDLINE_LAMBDA {
    const auto& s = scales[c / kRowPanelVecs];
    VecF32 value = T::kIsNarrow ? to_f32(whole[r][c]) * load(scale_at(s.unit, c), Full{}) : real[r][c];
    if constexpr (T::kHasMins) value = fma(to_f32(min_sum[r][c]), load(scale_at(s.min_unit, c), Full{}), value);
    const float x_scale = __builtin_bit_cast(float, load_int(row[r] + numbers_at));
    float* sum = place(r, c);
    store(sum, fma(value, set1(x_scale), is_first ? zero_f32() : load(sum, Full{})), Full{});
  });
}

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
