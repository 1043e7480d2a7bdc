// The epilogue of linear_tiles: turns the accumulators of 2 panels of x by 2 row panels of W, as the tile unit stores
// them, into y while they are in L1.
//
// A large y is written with non-temporal stores: it is written once and exceeds the caches, and a regular store would
// first read the cache line, doubling the traffic.
#pragma once

#include "kernels/cpu/activation_functions.h"
#include "kernels/cpu/linear/linear_end.h"
#include "kernels/cpu/linear/linear_finish.h"

namespace redline::REDLINE_ISA_NS {
namespace {

#if defined(__AVX512F__)
inline constexpr bool kHasStreams = true;
REDLINE_INLINE void stream(float* line, VecF32 v) { _mm512_stream_ps(line, v.v); }
/// Orders non-temporal stores before signals to other threads.
REDLINE_INLINE void stream_fence() { _mm_sfence(); }
#else
inline constexpr bool kHasStreams = false;
REDLINE_INLINE void stream(float* line, VecF32 v) { store(line, v, Full{}); }
REDLINE_INLINE void stream_fence() {}
#endif

/// Stores two row panels of a row as one 64-byte tile row, rounded to nearest even.
REDLINE_INLINE void store_tile_line(uint8_t* line, const RowPanelF32& first, const RowPanelF32& second, bool streams) {
#if defined(__AVX512BF16__)
  const auto both = (__m512i)_mm512_cvtne2ps_pbh(second.v[0].v, first.v[0].v);
  if (streams) _mm512_stream_si512(reinterpret_cast<__m512i*>(line), both);
  else _mm512_store_si512(line, both);
#else
  auto* halves = reinterpret_cast<BF16*>(line);
#pragma GCC unroll 4
  for (int i = 0; i < kRowPanelVecs; ++i) {
    store(halves + i * kWidth, first.v[i], Full{});
    store(halves + kRowPanelRows + i * kWidth, second.v[i], Full{});
  }
#endif
}
REDLINE_INLINE RowPanelF32 keep(const RowPanelF32& s, int64_t lanes) {
  alignas(64) float values[kRowPanelRows];
  if (lanes >= kRowPanelRows) return s;
  store_row_panel(values, s);
  return load_row_panel(values, max_i64(lanes, 0));
}

class TilesEnd {
 public:
  static constexpr int64_t kPanels = 2, kRowPanels = 2;
  static constexpr int64_t kTileFloats = kXTileRows * kRowPanelRows, kPanelFloats = kRowPanels * kTileFloats;
  static constexpr int64_t kSumsFloats = kPanels * kPanelFloats;  ///< [2 x panels][2 W panels][16][16]

  /// `firsts`: room for 16 columns of `max_rows` rows.
  TilesEnd(const LinearArgs& args, float* firsts)
      : a_(args), end_(args.end ? *args.end : LinearEnd{}), firsts_(firsts), streams_(streams()) {}

  bool is_gated() const { return end_.up_weight != nullptr; }
  /// Returns true if stores are non-temporal; a few rows of them at a time do not stall the products.
  bool is_streaming() const { return streams_; }
  /// Returns the number of columns of y per block.
  int64_t columns() const { return is_gated() ? kRowPanelRows : kRowPanels * kRowPanelRows; }

  /// Finishes the accumulators of rows [row, row + 32) and columns from n on; for a gated product the second row panel
  /// is that of the second matrix. row_in_range: index of the first row in the current range of rows.
  void block(int64_t row, int64_t row_in_range, int64_t n, float* sums) const {
    part(row, row_in_range, n, sums, 0, min_i64(kPanels * kXTileRows, a_.rows - row));
  }
  /// Finishes rows [row + begin, row + end) of that block.
  void part(int64_t row, int64_t row_in_range, int64_t n, float* sums, int64_t begin, int64_t end) const {
    const bool is_plain = !end_.tiles && !end_.activation && !is_gated() && n + columns() <= a_.n_end;
    if (is_plain && !streams_) return plain_rows(row, n, begin, end, sums);
    values(n, begin, end, sums);
    if (end_.tiles) {
      if (is_gated()) gated_tile_lines(row, row_in_range, n, begin, end, sums);
      else tile_lines(row, n, begin, end, sums);
    } else if (is_gated()) {
      for (int64_t r = begin; r < end; ++r)
        store_row_panel(a_.y + (row + r) * a_.y_stride + n, load_row_panel(at(sums, r, 0)), a_.n_end - n);
    } else if (streams_ && n + columns() <= a_.n_end) {
      whole_rows(row, n, begin, end, sums);
    } else {
      LinearArgs rest = a_;
      rest.bias = nullptr;
      for (int64_t r = begin; r < end; ++r) {
        finish_row_panel(rest, row + r, n, load_row_panel(at(sums, r, 0)));
        finish_row_panel(rest, row + r, n + kRowPanelRows, load_row_panel(at(sums, r, 1)));
      }
    }
  }
  /// Returns the residual that block() reads from row `row` on, y_stride apart; nullptr: there is none.
  const float* reads(int64_t row, int64_t n) const {
    return a_.residual ? a_.residual + row * a_.y_stride + n : nullptr;
  }
  void finish() const {
    if (streams_) stream_fence();
  }

 private:
  static REDLINE_INLINE float* at(float* sums, int64_t row, int64_t row_panel) {
    return sums + row / kXTileRows * kPanelFloats + row_panel * kTileFloats + row % kXTileRows * kRowPanelRows;
  }
  bool streams() const {
    constexpr int64_t kMinBytes = 1 << 20;
    const int64_t bytes = a_.rows * (a_.n_end - a_.n_begin) * (end_.tiles ? 2 : 4);
    const bool whole_lines = end_.tiles || (a_.y_stride % 16 == 0 && reinterpret_cast<uintptr_t>(a_.y) % 64 == 0);
    // For an in-place residual the lines of y are in cache when they are written.
    return kHasStreams && bytes >= kMinBytes && whole_lines && a_.residual != a_.y;
  }

  /// Applies biases, activation and second matrix, in place; results of a gated product go into the first row panel.
  /// Rows and panels past the last are skipped: values left there would be reprocessed until they become subnormal,
  /// which costs hundreds of cycles.
  void values(int64_t n, int64_t begin, int64_t end, float* sums) const {
    if (!a_.bias && !end_.activation && !is_gated()) return;
    if (end_.activation)
      return with_activation(*end_.activation, [&](const auto& f) { values_of(n, begin, end, sums, f); });
    values_of(n, begin, end, sums, [](VecF32 v) { return v; });
  }
  template <class F>
  void values_of(int64_t n, int64_t begin, int64_t end, float* sums, const F& f) const {
    const bool gated = is_gated();
    for (int64_t s = 0; s < (gated ? 1 : kRowPanels); ++s) {
      const int64_t first = n + s * kRowPanelRows, lanes = a_.n_end - first;
      if (lanes <= 0) break;
      const RowPanelF32 bias = a_.bias ? load_row_panel(a_.bias + first, lanes) : zero_row_panel();
      const RowPanelF32 up_bias = end_.up_bias ? load_row_panel(end_.up_bias + first, lanes) : zero_row_panel();
      for (int64_t r = begin; r < end; ++r) {
        float* value = at(sums, r, s);
#pragma GCC unroll 4
        for (int i = 0; i < kRowPanelVecs; ++i) {
          VecF32 v = load(value + i * kWidth, Full{});
          if (a_.bias) v = v + bias.v[i];
          v = f(v);
          if (gated) {
            VecF32 up = load(value + kTileFloats + i * kWidth, Full{});
            if (end_.up_bias) up = up + up_bias.v[i];
            v = v * up;
          }
          store(value + i * kWidth, v, Full{});
        }
      }
    }
  }

  /// Does finish_row_panel for two whole row panels, with few enough instructions per row that the next products begin
  /// while these wait for the tile unit's stores.
  void plain_rows(int64_t row, int64_t n, int64_t begin, int64_t end, const float* sums) const {
    if (a_.gate || (a_.bias && a_.residual)) return plain_rows_of<true, true, true>(row, n, begin, end, sums);
    if (a_.residual) return plain_rows_of<false, false, true>(row, n, begin, end, sums);
    if (a_.bias) return plain_rows_of<true, false, false>(row, n, begin, end, sums);
    plain_rows_of<false, false, false>(row, n, begin, end, sums);
  }
  template <bool kBias, bool kGate, bool kResidual>
  void plain_rows_of(int64_t row, int64_t n, int64_t begin, int64_t end, const float* sums) const {
    const bool has_bias = kBias && a_.bias, has_gate = kGate && a_.gate, has_residual = kResidual && a_.residual;
    const int64_t stride = a_.y_stride;
    float* y = a_.y + (row + begin) * stride + n;
    const float* residual = has_residual ? a_.residual + (row + begin) * stride + n : nullptr;
    RowPanelF32 bias[kRowPanels] = {}, gate[kRowPanels] = {};
#pragma GCC unroll 2
    for (int64_t s = 0; s < kRowPanels; ++s) {
      if (has_bias) bias[s] = load_row_panel(a_.bias + n + s * kRowPanelRows, kRowPanelRows);
      if (has_gate) gate[s] = load_row_panel(a_.gate + n + s * kRowPanelRows, kRowPanelRows);
    }
    for (int64_t r = begin; r < end; ++r, y += stride) {
      const float* from = sums + r / kXTileRows * kPanelFloats + r % kXTileRows * kRowPanelRows;
#pragma GCC unroll 2
      for (int64_t s = 0; s < kRowPanels; ++s)
#pragma GCC unroll 4
        for (int i = 0; i < kRowPanelVecs; ++i) {
          VecF32 v = load(from + s * kTileFloats + i * kWidth, Full{});
          if (has_bias) v = v + bias[s].v[i];
          if (has_gate) v = v * gate[s].v[i];
          if (has_residual) v = v + load(residual + s * kRowPanelRows + i * kWidth, Full{});
          store(y + s * kRowPanelRows + i * kWidth, v, Full{});
        }
      if (has_residual) residual += stride;
    }
  }

  void whole_rows(int64_t row, int64_t n, int64_t begin, int64_t end, float* sums) const {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t y_at = (row + r) * a_.y_stride + n;
#pragma GCC unroll 2
      for (int64_t s = 0; s < kRowPanels; ++s)
#pragma GCC unroll 4
        for (int i = 0; i < kRowPanelVecs; ++i) {
          const int64_t lane = s * kRowPanelRows + i * kWidth;
          VecF32 v = load(at(sums, r, s) + i * kWidth, Full{});
          if (a_.gate) v = v * load(a_.gate + n + lane, Full{});
          if (a_.residual) v = v + load(a_.residual + y_at + lane, Full{});
          stream(a_.y + y_at + lane, v);
        }
    }
  }

  uint8_t* tile_line(int64_t row, int64_t n) const {
    return static_cast<uint8_t*>(end_.tiles) + row / kXTileRows * tiles_panel_bytes(a_.out_features) +
           n / 32 * kXTileRows * kXTileBytes + row % kXTileRows * kXTileBytes;
  }
  void tile_lines(int64_t row, int64_t n, int64_t begin, int64_t end, float* sums) const {
    const int64_t columns = a_.out_features - n;
    for (int64_t r = begin; r < end; ++r)
      store_tile_line(tile_line(row + r, n), keep(load_row_panel(at(sums, r, 0)), columns),
                      keep(load_row_panel(at(sums, r, 1)), columns - kRowPanelRows), streams_);
  }
  /// Stores tile rows of a gated product. A 64-byte row of a tile takes two blocks: the first is kept until the second
  /// is complete.
  void gated_tile_lines(int64_t row, int64_t row_in_range, int64_t n, int64_t begin, int64_t end, float* sums) const {
    const int64_t columns = a_.out_features - n;
    for (int64_t r = begin; r < end; ++r) {
      float* first = firsts_ + (row_in_range + r) * kRowPanelRows;
      const RowPanelF32 value = keep(load_row_panel(at(sums, r, 0)), columns);
      if (n % 32 != 0) store_tile_line(tile_line(row + r, n - kRowPanelRows), load_row_panel(first), value, streams_);
      else if (columns > kRowPanelRows) store_row_panel(first, value);
      else store_tile_line(tile_line(row + r, n), value, zero_row_panel(), streams_);
    }
  }

  const LinearArgs& a_;
  const LinearEnd end_;
  float* const firsts_;
  const bool streams_;
};

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
