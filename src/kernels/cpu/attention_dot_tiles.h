// The tile unit of attention_bf16_pipeline.h by vdpbf16ps: tiles of sums are memory, which stays in L1, and the
// operands of a product are read where they lie.
//
// Pairs of k are summed in rising order into the sums themselves; the tile instruction sums even and odd k apart and
// adds both at the end.
#pragma once

#include "kernels/cpu/simd_row_panel.h"

namespace redline::REDLINE_ISA_NS {

class DotTiles {
  REDLINE_INLINE static VecF32 row_at(const void* p) {
    return redline::REDLINE_ISA_NS::load(static_cast<const float*>(p), Full{});
  }
  REDLINE_INLINE static void put_row(void* p, VecF32 row) {
    redline::REDLINE_ISA_NS::store(static_cast<float*>(p), row, Full{});
  }

 public:
  /// Two products with the same left matrix are one: 8 of its rows are 16 sums in registers, so that a broadcast serves
  /// two instructions.
  static constexpr bool kHasPairs = true;

  template <int tile>
  void zero() {
    for (auto& row : sums_[tile]) put_row(row, zero_f32());
  }
  /// Tiles 4 and above are not copied: what `rows` points to must stay until the product. Rows of the left matrix are
  /// adjacent.
  template <int tile>
  REDLINE_INLINE void load(const void* rows, int64_t stride_bytes) {
    if constexpr (tile >= 4) {
      operand_[tile - 4] = static_cast<const char*>(rows);
      stride_[tile - 4] = stride_bytes;
    } else {
      for (int r = 0; r < 16; ++r) put_row(sums_[tile][r], row_at(static_cast<const char*>(rows) + r * stride_bytes));
    }
  }
  template <int tile>
  REDLINE_INLINE void load_once(const void* rows, int64_t stride_bytes) {
    load<tile>(rows, stride_bytes);
  }
  template <int tile>
  REDLINE_INLINE void store(void* rows, int64_t stride_bytes) const {
    for (int r = 0; r < 16; ++r) put_row(static_cast<char*>(rows) + r * stride_bytes, row_at(sums_[tile][r]));
  }
  /// sums c += a x b and sums c + 1 += a x (b + 1).
  template <int c, int a, int b>
  REDLINE_INLINE void dot_bf16_pair() {
    dot_rows(sums_[c], sums_[c + 1], operand_[a - 4], operand_[b - 4], operand_[b - 3], stride_[b - 4]);
  }

 private:
  static constexpr int kRows = 8;
  [[gnu::noinline]] static void dot_rows(float (*x)[16], float (*y)[16], const char* left, const char* right_x,
                                         const char* right_y, int64_t right_stride) {
    for (int half = 0; half < 16; half += kRows, left += kRows * 64) {
      VecF32 sum_x[kRows], sum_y[kRows];
      unroll<kRows>([&](auto r) REDLINE_LAMBDA {
        sum_x[r] = row_at(x[half + r]);
        sum_y[r] = row_at(y[half + r]);
      });
      const char *from_x = right_x, *from_y = right_y;
      for (int pair = 0; pair < 16; ++pair, from_x += right_stride, from_y += right_stride) {
        const VecI32 columns_x = load_i32(from_x), columns_y = load_i32(from_y);
        unroll<kRows>([&](auto r) REDLINE_LAMBDA {
          int32_t both;
          __builtin_memcpy(&both, left + r * 64 + pair * 4, 4);
          sum_x[r] = dot2_bf16(sum_x[r], set1_i32(both), columns_x);
          sum_y[r] = dot2_bf16(sum_y[r], set1_i32(both), columns_y);
        });
      }
      unroll<kRows>([&](auto r) REDLINE_LAMBDA {
        put_row(x[half + r], sum_x[r]);
        put_row(y[half + r], sum_y[r]);
      });
    }
  }

  alignas(64) float sums_[4][16][16];
  const char* operand_[4] = {};
  int64_t stride_[4] = {};
};

}  // namespace redline::REDLINE_ISA_NS
