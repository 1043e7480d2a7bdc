// t = x down^T of a few rows with the down matrix of an adapter in Q8_0: the "shrink" of adapters, SGMV in Punica (Chen
// et al. 2023, arXiv:2310.18547). linear_q8[kI8]: arguments and bits of linear_q8[kQ8_0], without bias.
//
// A matrix has a row panel or two, and a step with many adapters reads each once. linear_q8 prefetches the row panels
// that follow and prepares scales for tiles of rows and columns: here that took half of the time.
#pragma once

#include "kernels/cpu/linear/linear_q8_scales.h"

namespace redline::REDLINE_ISA_NS {
namespace {

// Prefetch distance. Matrices are in L2, because the product before has prefetched them.
constexpr int64_t kShrinkPrefetchBytes = 2048;

/// Computes columns [n, n + kRowPanelRows) of one row.
REDLINE_INLINE void shrink_row_panel(const LinearArgs& a, int64_t row, int64_t n) {
  using Format = blocks::Q8_0;
  using Panel = blocks::RowPanel<Format>;
  const int64_t steps = a.in_features / kQ8Step, panel_bytes = steps * Panel::kBytes;
  const uint8_t* x = static_cast<const uint8_t*>(a.x) + row * q8_row_bytes(a.in_features);
  const auto* numbers = reinterpret_cast<const Q8Numbers*>(x + q8_numbers_at(a.in_features));
  const uint8_t* block = static_cast<const uint8_t*>(a.weight) + n / kRowPanelRows * panel_bytes;
  const uint8_t* const end = block + panel_bytes;
  RowPanelF32 sum = zero_row_panel();
  for (int64_t first = 0; first < steps; first += kQ8Group / kQ8Step, ++numbers) {
    RowPanelF32 part = zero_row_panel();
    const int64_t count = min_i64(kQ8Group / kQ8Step, steps - first);
    for (int64_t step = 0; step < count; ++step, block += Panel::kBytes, x += kQ8Step) {
      if (block + kShrinkPrefetchBytes < end)
        for (int64_t line = 0; line < Panel::kBytes; line += 64)
          __builtin_prefetch(block + kShrinkPrefetchBytes + line);
      const int shift = numbers->shifts[step];
      const VecI32 start = set1_i32(kHasVnni ? -Format::kOffset * (numbers->sums32[step] >> shift) : 0);
      const VecF32 power = bits_f32(set1_i32((127 + shift) << 23));
      RowPanelI32 dot;
      unroll<kRowPanelVecs>([&](auto v) REDLINE_LAMBDA { dot.v[v] = start; });
      unroll<kWidth == 4 ? 1 : blocks::kStepLines>([&](int l) REDLINE_LAMBDA {
        for (int64_t line = l; line < blocks::kStepLines; line += kWidth == 4 ? 1 : blocks::kStepLines) {
          const VecI32 four = set1_i32(load_int(x + line * 4));
          unroll<kRowPanelVecs>([&](auto v) REDLINE_LAMBDA {
            VecI32 codes = load_i32(block + Panel::kHeadBytes + line * 64 + v * kWidth * 4);
            if (!kHasVnni) codes = codes ^ set1_i32(static_cast<int32_t>(0x80808080u));
            dot.v[v] = kHasVnni ? dot4_u7s8(dot.v[v], codes, four) : dot4_s8s8(dot.v[v], codes, four);
          });
        }
      });
      unroll<kRowPanelVecs>([&](auto v) REDLINE_LAMBDA {
        const VecF32 scale = floats_f32(Format::Head::scale(block, 0, v)) * power;
        part.v[v] = fma(scale, to_f32(dot.v[v]), part.v[v]);
      });
    }
    unroll<kRowPanelVecs>([&](auto v) REDLINE_LAMBDA { sum.v[v] = fma(part.v[v], set1(numbers->scale), sum.v[v]); });
  }
  finish_row_panel(a, row, n, sum);
}

void lora_shrink(const LinearArgs& a) {
  for (int64_t row = 0; row < a.rows; ++row)
    for (int64_t n = a.n_begin; n < a.n_end; n += kRowPanelRows) shrink_row_panel(a, row, n);
}

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
