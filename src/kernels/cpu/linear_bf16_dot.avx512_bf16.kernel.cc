// linear_tiles for bfloat16 weights with vdpbf16ps, for cores without a tile unit where the instruction has twice the
// throughput of a float32 FMA (selected in linear_choice.h).
//
// x is kBf16Tiled: a pair of elements of one row is a 4-byte broadcast, multiplied with 64 bytes of 16 weight rows.
// Every element accumulates pairs of k in rising order, so neither blocking nor the other rows change its bits.
#include "kernels/cpu/linear_finish.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int kDotRows = 12, kDotRowPanels = 2;  // 24 accumulators, two weights and a broadcast
constexpr int64_t kStepElements = 32;            // of K in a tile
constexpr int64_t kTileColumns = kDotRowPanels * kRowPanelRows;
// Steps between spills of the accumulators: two row panels of a chunk stay in L1.
constexpr int64_t kChunkSteps = 12;
constexpr int64_t kPanelRows = 512, kGroupColumns = 1024;
static_assert(kPanelRows * kGroupColumns * 4 <= kScratchBytes);
/// x of this size stays in L2 for all of K.
constexpr int64_t kResidentBytes = 384 << 10;
// Prefetch distance in each row panel, where one tile has all rows and the weights come from memory.
constexpr int64_t kPrefetchBytes = 2048;
// Weights of a task that may lie in a cache from the last step. There the latency of two sums bounds a single row, and
// four row panels read faster; from memory two streams do.
constexpr int64_t kCachedBytes = 512 << 10;

struct DotTile {
  const LinearArgs* a;
  int64_t row, n;
  int64_t step_begin, step_end;
  const uint8_t* lines;  // of the first row panel
  int64_t row_panel_bytes;
  float* sums;  // [rows][row panels][16]
  bool first, last;
};

template <int kRows, int kRowPanels, bool kIsStream>
[[gnu::noinline]] void run_tile(const DotTile& t) {
  const LinearArgs& a = *t.a;
  const int64_t panel_bytes = tiles_panel_bytes(a.in_features);
  const uint8_t* x[kRows];
  VecF32 sum[kRows][kRowPanels];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = t.row + r;
    x[r] = static_cast<const uint8_t*>(a.x) + row / kXTileRows * panel_bytes + row % kXTileRows * kXTileBytes;
#pragma GCC unroll 4
    for (int s = 0; s < kRowPanels; ++s)
      sum[r][s] = t.first ? zero_f32() : load(t.sums + (r * kRowPanels + s) * kRowPanelRows, Full{});
  }
  // K may end inside a tile of x; a packed row panel ends with the last pair.
  const int64_t pairs_total = (a.in_features + 1) / 2;
  for (int64_t step = t.step_begin; step < t.step_end; ++step) {
    const int64_t pairs = min_i64(kStepElements / 2, pairs_total - step * (kStepElements / 2));
    const uint8_t* lines = t.lines + step * (kStepElements / 2) * 64;
    const int64_t x_at = step * kXTileRows * kXTileBytes;
    for (int64_t p = 0; p < pairs; ++p) {
      if constexpr (kIsStream) {
#pragma GCC unroll 4
        for (int s = 0; s < kRowPanels; ++s)
          __builtin_prefetch(lines + s * t.row_panel_bytes + p * 64 + kPrefetchBytes);
      }
      VecI32 w[kRowPanels];
#pragma GCC unroll 4
      for (int s = 0; s < kRowPanels; ++s) w[s] = load_i32(lines + s * t.row_panel_bytes + p * 64);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        int32_t pair;
        __builtin_memcpy(&pair, x[r] + x_at + p * 4, 4);
        const VecI32 both = set1_i32(pair);
#pragma GCC unroll 4
        for (int s = 0; s < kRowPanels; ++s) sum[r][s] = dot2_bf16(sum[r][s], w[s], both);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int s = 0; s < kRowPanels; ++s) {
      if (t.last) finish_row_panel(a, t.row + r, t.n + s * kRowPanelRows, {{sum[r][s]}});
      else store(t.sums + (r * kRowPanels + s) * kRowPanelRows, sum[r][s], Full{});
    }
  }
}

template <bool kIsStream, int kRows = kDotRows>
void run_rows(int rows, const DotTile& t) {
  if (rows == kRows) return run_tile<kRows, kDotRowPanels, kIsStream>(t);
  if constexpr (kRows > 1) run_rows<kIsStream, kRows - 1>(rows, t);
}

/// One chunk of K for all rows of a panel and one tile of columns.
void run_panel(DotTile t, int64_t panel, int64_t rows, float* sums) {
  int64_t row = 0;
  for (int64_t left = (rows + kDotRows - 1) / kDotRows; left > 0; --left) {
    const int64_t tile_rows = (rows - row + left - 1) / left;  // balanced
    t.row = panel + row;
    t.sums = sums + row * kTileColumns;
    run_rows<false>(static_cast<int>(tile_rows), t);
    row += tile_rows;
  }
}

// A single tile of rows has nothing to gain from blocking: the weights are used once, and two row panels are two
// streams from memory over all of K. Chunks of K would make them short runs, which read 25 of 37 GB/s on Zen 5.
void run_few(const LinearArgs& a, int64_t row_panel_bytes, int64_t steps) {
  DotTile t;
  t.a = &a;
  t.row = 0;
  t.step_begin = 0;
  t.step_end = steps;
  t.sums = nullptr;
  t.first = t.last = true;
  t.n = a.n_begin;
  if (a.rows == 1 && (a.n_end - a.n_begin + kRowPanelRows - 1) / kRowPanelRows * row_panel_bytes <= kCachedBytes) {
    t.row_panel_bytes = row_panel_bytes;
    for (; t.n + 3 * kRowPanelRows < a.n_end; t.n += 4 * kRowPanelRows) {
      t.lines = static_cast<const uint8_t*>(a.weight) + t.n / kRowPanelRows * row_panel_bytes;
      run_tile<1, 4, true>(t);
    }
  }
  for (; t.n < a.n_end; t.n += kTileColumns) {
    t.lines = static_cast<const uint8_t*>(a.weight) + t.n / kRowPanelRows * row_panel_bytes;
    t.row_panel_bytes = a.n_end - t.n > kRowPanelRows ? row_panel_bytes : 0;
    run_rows<true>(static_cast<int>(a.rows), t);
  }
}

// Where x of all K does not fit in L2, the chunks of K are the outer loop and a group of columns the inner one: a chunk
// of x is read from L2 by the whole group, and the sums of the group are in scratch meanwhile.
void linear_bf16_dot(const LinearArgs& a) {
  const int64_t row_panel_bytes = (a.in_features + 1) / 2 * 64;
  const int64_t steps = (a.in_features + kStepElements - 1) / kStepElements;
  if (a.rows <= kDotRows) return run_few(a, row_panel_bytes, steps);
  for (int64_t panel = 0; panel < a.rows; panel += kPanelRows) {
    const int64_t rows = min_i64(kPanelRows, a.rows - panel);
    const int64_t columns = rows * a.in_features * 2 <= kResidentBytes ? kTileColumns : kGroupColumns;
    for (int64_t group = a.n_begin; group < a.n_end; group += columns) {
      const int64_t end = min_i64(group + columns, a.n_end);
      DotTile t;
      t.a = &a;
      t.step_begin = 0;
      do {  // runs once for K = 0 too: y = bias + residual
        t.step_end = min_i64(t.step_begin + kChunkSteps, steps);
        t.first = t.step_begin == 0;
        t.last = t.step_end == steps;
        for (t.n = group; t.n < end; t.n += kTileColumns) {
          t.lines = static_cast<const uint8_t*>(a.weight) + t.n / kRowPanelRows * row_panel_bytes;
          // A single last panel is computed twice and stored once.
          t.row_panel_bytes = a.n_end - t.n > kRowPanelRows ? row_panel_bytes : 0;
          run_panel(t, panel, rows, static_cast<float*>(a.scratch) + (t.n - group) * kPanelRows);
        }
        t.step_begin = t.step_end;
      } while (t.step_begin < steps);
    }
  }
}

}  // namespace

void fill_linear_bf16_dot(CpuKernels& t) {
  t.linear_tiles[static_cast<int>(DType::kBF16)] = linear_bf16_dot;
  // vdpbf16ps has twice the throughput of an FMA on Zen 4 and half of it on Intel cores (docs/performance.md).
  t.has_fast_bf16_dot = __builtin_cpu_is("amd");
}

}  // namespace redline::REDLINE_ISA_NS
