// linear_tiles for bfloat16 weights with vdpbf16ps, for cores without a tile unit where the instruction has twice the
// throughput of a float32 FMA (selected in linear_choice.h).
//
// x is kBf16Tiled: a pair of elements of one row is a 4-byte broadcast, multiplied with 64 bytes of 16 weight rows.
// Every element accumulates pairs of k in rising order, so neither blocking nor the other rows change its bits.
#include "kernels/cpu/linear/linear_finish.h"
#include "kernels/cpu/linear/linear_next_weights.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int kDotRows = 12, kDotRowPanels = 2;                    // 24 accumulators, two weights and a broadcast
constexpr int64_t kStepElements = 32;                              // of K in a tile
constexpr int64_t kStepBytes = kStepElements * kRowPanelRows * 2;  // of a row panel
constexpr int64_t kTileColumns = kDotRowPanels * kRowPanelRows;
// Steps between spills of the accumulators: two row panels of a chunk, 20 KiB, stay in an L1 cache of 32 KiB.
constexpr int64_t kChunkSteps = 10;
constexpr int64_t kPanelRows = 512, kGroupColumns = 1024;
static_assert(kPanelRows * kGroupColumns * 4 <= kScratchBytes);
/// x of this size stays in L2 for all of K.
constexpr int64_t kResidentBytes = 384 << 10;
// Rows of a tile that are in one row panel of x, so that one address serves them.
constexpr int kGroupRows = 4, kRowGroups = kDotRows / kGroupRows;
// Prefetch distance in each row panel, where one tile has all rows and the weights come from memory.
constexpr int64_t kPrefetchBytes = 2048;
// Weights of a task that may lie in a cache from the last step. There the latency of two sums bounds a single row, and
// four row panels read faster; from memory two streams do.
constexpr int64_t kCachedBytes = 512 << 10;

/// A tile of all rows by some row panels, over all of K.
struct StreamTile {
  const LinearArgs* a;
  int64_t n;
  const uint8_t* lines;  // of the first row panel
  int64_t row_panel_bytes;
};

template <int kRows, int kRowPanels>
[[gnu::noinline]] void run_stream_tile(const StreamTile& t) {
  const LinearArgs& a = *t.a;
  const auto* x = static_cast<const uint8_t*>(a.x);
  VecF32 sum[kRows][kRowPanels];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int s = 0; s < kRowPanels; ++s) sum[r][s] = zero_f32();
  }
  // K may end inside a tile of x; a packed row panel ends with the last pair.
  const uint8_t* lines = t.lines;
  for (int64_t left = (a.in_features + 1) / 2; left > 0; left -= kStepElements / 2, x += kXTileRows * kXTileBytes) {
    const int64_t pairs = min_i64(kStepElements / 2, left);
    for (int64_t p = 0; p < pairs; ++p, lines += 64) {
      VecI32 w[kRowPanels];
#pragma GCC unroll 4
      for (int s = 0; s < kRowPanels; ++s) {
        __builtin_prefetch(lines + s * t.row_panel_bytes + kPrefetchBytes);
        w[s] = load_i32(lines + s * t.row_panel_bytes);
      }
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        int32_t pair;
        __builtin_memcpy(&pair, x + r * kXTileBytes + p * 4, 4);
        const VecI32 both = set1_i32(pair);
#pragma GCC unroll 4
        for (int s = 0; s < kRowPanels; ++s) sum[r][s] = dot2_bf16(sum[r][s], w[s], both);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int s = 0; s < kRowPanels; ++s) finish_row_panel(a, r, t.n + s * kRowPanelRows, {{sum[r][s]}});
  }
}

template <int kRows = kDotRows>
void run_stream_rows(int64_t rows, const StreamTile& t) {
  if (rows == kRows) return run_stream_tile<kRows, kDotRowPanels>(t);
  if constexpr (kRows > 1) run_stream_rows<kRows - 1>(rows, t);
}

// A single tile of rows has nothing to gain from blocking: the weights are used once, and two row panels are two
// streams from memory over all of K. Chunks of K would make them short runs, which read 25 of 37 GB/s on Zen 5.
void run_few(const LinearArgs& a, int64_t row_panel_bytes) {
  StreamTile t;
  t.a = &a;
  t.n = a.n_begin;
  if (a.rows == 1 && (a.n_end - a.n_begin + kRowPanelRows - 1) / kRowPanelRows * row_panel_bytes <= kCachedBytes) {
    t.row_panel_bytes = row_panel_bytes;
    for (; t.n + 3 * kRowPanelRows < a.n_end; t.n += 4 * kRowPanelRows) {
      t.lines = static_cast<const uint8_t*>(a.weight) + t.n / kRowPanelRows * row_panel_bytes;
      run_stream_tile<1, 4>(t);
    }
  }
  for (; t.n < a.n_end; t.n += kTileColumns) {
    t.lines = static_cast<const uint8_t*>(a.weight) + t.n / kRowPanelRows * row_panel_bytes;
    t.row_panel_bytes = a.n_end - t.n > kRowPanelRows ? row_panel_bytes : 0;
    run_stream_rows(a.rows, t);
  }
}

// A tile of some rows by some row panels, over one chunk of K. Used for many rows.
struct BlockTile {
  const uint8_t* x[kRowGroups];  // of kGroupRows adjacent rows each
  const uint8_t* w[kDotRowPanels];
  int64_t steps, last_pairs;
  float* sums;  // [rows][row panels][16]
  bool first;
};

template <int kRows>
[[gnu::noinline]] void run_block_tile(const BlockTile& t) {
  constexpr int kGroups = (kRows + kGroupRows - 1) / kGroupRows;
  const uint8_t *x[kGroups], *w[kDotRowPanels];
  VecF32 sum[kRows][kDotRowPanels];
  unroll<kGroups>([&](auto g) REDLINE_LAMBDA { x[g] = t.x[g]; });
  unroll<kDotRowPanels>([&](auto s) REDLINE_LAMBDA { w[s] = t.w[s]; });
  unroll<kRows>([&](auto r) REDLINE_LAMBDA {
    unroll<kDotRowPanels>([&](auto s) REDLINE_LAMBDA {
      float* at = t.sums + (r * kDotRowPanels + s) * kRowPanelRows;
      sum[r][s] = t.first ? zero_f32() : load(at, Full{});
      // Prefetches the sums of the next tile of rows.
      __builtin_prefetch(at + kRows * kTileColumns, 0, 3);
    });
  });
  for (int64_t step = t.steps; step > 0; --step) {
    // The next step of x, which is in L2.
    unroll<kRows>([&](auto r) REDLINE_LAMBDA {
      __builtin_prefetch(x[r / kGroupRows] + kXTileRows * kXTileBytes + r % kGroupRows * kXTileBytes, 0, 3);
    });
    int64_t pairs = step == 1 ? t.last_pairs : kStepElements / 2;
    const int64_t next = kXTileRows * kXTileBytes - pairs * 4;
    do {
      VecI32 both[kDotRowPanels];
      unroll<kDotRowPanels>([&](auto s) REDLINE_LAMBDA {
        both[s] = load_i32(w[s]);
        w[s] += 64;
      });
      unroll<kRows>([&](auto r) REDLINE_LAMBDA {
        int32_t pair;
        __builtin_memcpy(&pair, x[r / kGroupRows] + r % kGroupRows * kXTileBytes, 4);
        const VecI32 all = set1_i32(pair);
        unroll<kDotRowPanels>([&](auto s) REDLINE_LAMBDA { sum[r][s] = dot2_bf16(sum[r][s], both[s], all); });
      });
      unroll<kGroups>([&](auto g) REDLINE_LAMBDA { x[g] += 4; });
    } while (--pairs > 0);
    unroll<kGroups>([&](auto g) REDLINE_LAMBDA { x[g] += next; });
  }
  unroll<kRows>([&](auto r) REDLINE_LAMBDA {
    unroll<kDotRowPanels>(
        [&](auto s) REDLINE_LAMBDA { store(t.sums + (r * kDotRowPanels + s) * kRowPanelRows, sum[r][s], Full{}); });
  });
}

template <int kRows = kDotRows>
void run_block_rows(int64_t rows, const BlockTile& t) {
  if (rows == kRows) return run_block_tile<kRows>(t);
  if constexpr (kRows > 1) run_block_rows<kRows - 1>(rows, t);
}

void finish_tile(const LinearArgs& a, int64_t row, int64_t n, int64_t rows, const float* sums) {
  for (int64_t r = 0; r < rows; ++r)
    for (int s = 0; s < kDotRowPanels; ++s)
      finish_row_panel(a, row + r, n + s * kRowPanelRows,
                       load_row_panel(sums + (r * kDotRowPanels + s) * kRowPanelRows));
}

int64_t tiles_of(int64_t rows) { return (rows + kDotRows - 1) / kDotRows; }

/// The product of all rows of a panel of x with one tile of columns, over one chunk of K.
struct Chunk {
  int64_t panel, rows;
  int64_t n;
  int64_t step, steps;
  float* sums;  // [rows][row panels][16]
};

void run_chunk(const LinearArgs& a, const Chunk& c, NextWeights next) {
  const int64_t pairs = (a.in_features + 1) / 2, row_panel_bytes = pairs * 64,
                panel_bytes = tiles_panel_bytes(a.in_features);
  const bool last = (c.step + c.steps) * kStepElements >= a.in_features;
  BlockTile t;
  t.w[0] = static_cast<const uint8_t*>(a.weight) + c.n / kRowPanelRows * row_panel_bytes + c.step * kStepBytes;
  // A single last panel is computed twice and stored once.
  t.w[1] = t.w[0] + (a.n_end - c.n > kRowPanelRows ? row_panel_bytes : 0);
  t.steps = c.steps;
  t.last_pairs = min_i64(kStepElements / 2, pairs - (c.step + c.steps - 1) * (kStepElements / 2));
  t.first = c.step == 0;
  const auto* x = static_cast<const uint8_t*>(a.x) + c.step * kXTileRows * kXTileBytes;
  int64_t row = 0;
  for (int64_t left = tiles_of(c.rows); left > 0 && row < c.rows; --left) {
    const int64_t balanced = ((c.rows - row + left - 1) / left + kGroupRows - 1) / kGroupRows * kGroupRows;
    const int64_t tile_rows = min_i64(c.rows - row, balanced);
    for (int g = 0; g < kRowGroups; ++g) {
      const int64_t at = c.panel + row + g * kGroupRows;
      t.x[g] = x + at / kXTileRows * panel_bytes + at % kXTileRows * kXTileBytes;
    }
    t.sums = c.sums + row * kTileColumns;
    next.prefetch();
    if (last) prefetch_finish(a, c.panel + row, tile_rows, c.n, kDotRowPanels);
    run_block_rows(tile_rows, t);
    if (last) finish_tile(a, c.panel + row, c.n, tile_rows, t.sums);
    row += tile_rows;
  }
}

// Where x of all K does not fit in L2, the chunks of K are the outer loop and a group of columns the inner one: a chunk
// of x is read from L2 by the whole group, and the sums of the group are in scratch meanwhile.
void linear_bf16_dot(const LinearArgs& a) {
  const int64_t row_panel_bytes = (a.in_features + 1) / 2 * 64;
  const int64_t steps = (a.in_features + kStepElements - 1) / kStepElements;
  if (a.rows <= kDotRows) return run_few(a, row_panel_bytes);
  Chunk c;
  for (c.panel = 0; c.panel < a.rows; c.panel += kPanelRows) {
    c.rows = min_i64(kPanelRows, a.rows - c.panel);
    const int64_t columns = c.rows * a.in_features * 2 <= kResidentBytes ? kTileColumns : kGroupColumns;
    for (int64_t group = a.n_begin; group < a.n_end; group += columns) {
      const int64_t end = min_i64(group + columns, a.n_end);
      c.step = 0;
      do {  // runs once for K = 0 too: y = bias + residual
        c.steps = min_i64(kChunkSteps, steps - c.step);
        for (c.n = group; c.n < end; c.n += kTileColumns) {
          const ChunkPlace then = chunk_after({c.n, c.step}, kTileColumns, group, end, kChunkSteps, steps);
          const NextWeights next(
              static_cast<const uint8_t*>(a.weight) + then.n / kRowPanelRows * row_panel_bytes + then.k * kStepBytes,
              row_panel_bytes, min_i64(kDotRowPanels, (a.n_end - then.n + kRowPanelRows - 1) / kRowPanelRows),
              min_i64(kChunkSteps * kStepBytes, row_panel_bytes - then.k * kStepBytes), tiles_of(c.rows));
          c.sums = static_cast<float*>(a.scratch) + (c.n - group) * kPanelRows;
          run_chunk(a, c, next);
        }
        c.step += c.steps;
      } while (c.step < steps);
    }
  }
}

}  // namespace

void fill_linear_bf16_dot(CpuKernels& t) {
  t.linear_tiles[static_cast<int>(DType::kBF16)] = linear_bf16_dot;
  // vdpbf16ps has twice the throughput of an FMA on Zen 4 and half of it on Intel cores
  // (docs/history/performance-notes.md).
  t.has_fast_bf16_dot = __builtin_cpu_is("amd");
}

}  // namespace redline::REDLINE_ISA_NS
