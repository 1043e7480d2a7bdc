// y = x W^T (+ bias) (+ residual) in float32 for every weight type. W is packed in row panels of 16 rows
// (tensor/packed_weight.h).
//
// Each output element accumulates even and odd k separately, both in rising order, then adds the two sums, the bias and
// the residual. Register blocking and the K chunks do not change this order, so results are bit-identical for any
// blocking.
//
// A tile is kTileRows rows of x by kTileRowPanels row panels of W. For each k, one load per panel and one broadcast per
// row feed rows * panels FMAs; both sums of every element stay in registers. Block formats, and with many rows weights
// of two bytes, are unpacked to float32 in scratch, kChunk elements of K at a time, and use the f32 tile.
//
// Few rows go through all of K for each pair of row panels, so that weights are read in order. Many rows are blocked:
// the x of a chunk of K and the sums of a block of columns stay in L2, the weights of a tile in L1.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/linear/linear_finish.h"
#include "tensor/blocks/all.h"

namespace redline::REDLINE_ISA_NS {
namespace {

// Register blocking: accumulators take 24 of 32, 12 of 16 or 8 of 16 vector registers; the rest hold weights.
constexpr int kTileRows = kWidth == 16 ? 6 : kWidth == 8 ? 3 : 1;
constexpr int kTileRowPanels = kWidth == 16 ? 2 : 1;
constexpr int64_t kTileCols = kTileRowPanels * kRowPanelRows;
// Elements of K between spills of the accumulators: float32 weights of two row panels take 32 KB.
constexpr int64_t kChunk = 256;
// Prefetch distance for the weights when there is a single row.
constexpr int64_t kPrefetchBytes = 2048;
// Many rows: the rows and columns of a block.
constexpr int64_t kMinBlockedRows = 64;
constexpr int64_t kBlockRows = 192, kBlockCols = 256;

constexpr int64_t kSumFloats = 2 * kRowPanelRows;  // even and odd
constexpr int64_t kSumBytes = kBlockRows * kBlockCols / kRowPanelRows * kSumFloats * 4;
constexpr int64_t kLinesBytes = kTileRowPanels * kChunk * kRowPanelRows * 4;
static_assert(kMinBlockedRows <= kBlockRows && kTileCols <= kBlockCols);
static_assert(kSumBytes + kLinesBytes <= kScratchBytes);

// Loads the two 16-row vectors for k and k + 1 ("even" and "odd") and the elements of x that they are multiplied by,
// and adds both sums at the end.
struct LinesOfOneK {
  REDLINE_INLINE static VecF32 x_even(const float* x) { return set1(x[0]); }
  REDLINE_INLINE static VecF32 x_odd(const float* x) { return set1(x[1]); }
  REDLINE_INLINE static RowPanelF32 total(const RowPanelF32& even, const RowPanelF32& odd) {
    RowPanelF32 y;
#pragma GCC unroll 4
    for (int i = 0; i < kRowPanelVecs; ++i) y.v[i] = even.v[i] + odd.v[i];
    return y;
  }
  /// Returns x for the last k of an odd K: the other half of its pair is padding, and x ends there.
  REDLINE_INLINE static VecF32 last_x(const float* x) { return set1(x[0]); }
  static constexpr bool kIsOddUsedInLast = false;
};
// With kMinExpandRows rows or more, it costs less to expand the lines first.
struct F32Lines : LinesOfOneK {
  static constexpr int64_t kPairBytes = 128, kElementBytes = 4;
  REDLINE_INLINE static RowPanelF32 even(const uint8_t* pair) {
    return load_row_panel(reinterpret_cast<const float*>(pair));
  }
  REDLINE_INLINE static RowPanelF32 odd(const uint8_t* pair) { return even(pair + 64); }
};
struct BF16Lines : LinesOfOneK {
  static constexpr int64_t kPairBytes = 64, kElementBytes = 2;
  static constexpr int64_t kMinExpandRows = kWidth == 16 ? 48 : 24;
  REDLINE_INLINE static RowPanelF32 even(const uint8_t* pair) {
    const RowPanelI32 line = load_row_panel_i32(pair);
    RowPanelF32 s;
#pragma GCC unroll 4
    for (int i = 0; i < kRowPanelVecs; ++i) s.v[i] = bits_f32(shl<16>(line.v[i]));
    return s;
  }
  REDLINE_INLINE static RowPanelF32 odd(const uint8_t* pair) {
    const RowPanelI32 line = load_row_panel_i32(pair);
    RowPanelF32 s;
#pragma GCC unroll 4
    for (int i = 0; i < kRowPanelVecs; ++i) s.v[i] = bits_f32(line.v[i] & set1_i32(static_cast<int32_t>(0xffff0000u)));
    return s;
  }
};
struct F16Lines : LinesOfOneK {
  static constexpr int64_t kPairBytes = 64, kElementBytes = 2;
  static constexpr int64_t kMinExpandRows = 12;
  REDLINE_INLINE static RowPanelF32 even(const uint8_t* pair) {
    const RowPanelI32 line = load_row_panel_i32(pair);
    RowPanelF32 s;
#pragma GCC unroll 4
    for (int i = 0; i < kRowPanelVecs; ++i) s.v[i] = low_half_f32(line.v[i]);
    return s;
  }
  REDLINE_INLINE static RowPanelF32 odd(const uint8_t* pair) {
    const RowPanelI32 line = load_row_panel_i32(pair);
    RowPanelF32 s;
#pragma GCC unroll 4
    for (int i = 0; i < kRowPanelVecs; ++i) s.v[i] = low_half_f32(shr<16>(line.v[i]));
    return s;
  }
};

#if defined(__AVX2__)
// The conversion instruction reads consecutive numbers, which are k and k + 1 of the same row. Here the "even" vector
// holds both k of the first eight rows and the "odd" vector both k of the other eight. Each element still has the same
// two sums, which are added at the end.
struct F16PairLines {
  static constexpr int64_t kPairBytes = 64, kElementBytes = 2;
  static constexpr bool kIsOddUsedInLast = true;
  REDLINE_INLINE static RowPanelF32 even(const uint8_t* pair) {
    RowPanelF32 s;
#pragma GCC unroll 4
    for (int i = 0; i < kRowPanelVecs; ++i) s.v[i] = halves_f32(pair + i * 2 * kWidth);
    return s;
  }
  REDLINE_INLINE static RowPanelF32 odd(const uint8_t* pair) { return even(pair + 2 * kRowPanelRows); }
  REDLINE_INLINE static VecF32 x_even(const float* x) { return set1_pair(x); }
  REDLINE_INLINE static VecF32 x_odd(const float* x) { return set1_pair(x); }
  REDLINE_INLINE static VecF32 last_x(const float* x) {
    const float padded[2] = {x[0], 0};
    return set1_pair(padded);
  }
  REDLINE_INLINE static RowPanelF32 total(const RowPanelF32& even, const RowPanelF32& odd) {
    VecF32 sums[2 * kRowPanelVecs];
#pragma GCC unroll 4
    for (int i = 0; i < kRowPanelVecs; ++i) {
      sums[i] = even.v[i];
      sums[kRowPanelVecs + i] = odd.v[i];
    }
    RowPanelF32 y;
#pragma GCC unroll 4
    for (int i = 0; i < kRowPanelVecs; ++i) y.v[i] = add_neighbours(sums[2 * i], sums[2 * i + 1]);
    return y;
  }
};
#else
using F16PairLines = F16Lines;
#endif

struct Tile {
  const LinearArgs* a;
  int64_t row, n;           // of the first output element
  int64_t k_begin, k;       // chunk of K
  const uint8_t* lines;     // weights of the chunk, first row panel
  int64_t row_panel_bytes;  // stride between row panels
  float* sums;              // [rows][panels][even, odd][16]; unused when the chunk is all of K
  bool first, last;
};

template <class Lines, int kRows, int kRowPanels>
[[gnu::noinline]] void run_tile(const Tile& t) {
  const LinearArgs& a = *t.a;
  const float* x = static_cast<const float*>(a.x) + t.row * a.x_stride + t.k_begin;
  const int64_t x_stride = a.x_stride;
  RowPanelF32 even[kRows][kRowPanels], odd[kRows][kRowPanels];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int s = 0; s < kRowPanels; ++s) {
      const float* sums = t.sums + (r * kRowPanels + s) * kSumFloats;
      even[r][s] = t.first ? zero_row_panel() : load_row_panel(sums);
      odd[r][s] = t.first ? zero_row_panel() : load_row_panel(sums + kRowPanelRows);
    }
  }

  const uint8_t* pair = t.lines;
  int64_t k = 0;
  for (; k + 1 < t.k; k += 2, pair += Lines::kPairBytes) {
    RowPanelF32 w[kRowPanels];
    if constexpr (kRows == 1) {
#pragma GCC unroll 2
      for (int s = 0; s < kRowPanels; ++s) __builtin_prefetch(pair + s * t.row_panel_bytes + kPrefetchBytes);
    }
#pragma GCC unroll 2
    for (int s = 0; s < kRowPanels; ++s) w[s] = Lines::even(pair + s * t.row_panel_bytes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VecF32 xk = Lines::x_even(x + r * x_stride + k);
#pragma GCC unroll 2
      for (int s = 0; s < kRowPanels; ++s) even[r][s] = fma(w[s], xk, even[r][s]);
    }
#pragma GCC unroll 2
    for (int s = 0; s < kRowPanels; ++s) w[s] = Lines::odd(pair + s * t.row_panel_bytes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VecF32 xk = Lines::x_odd(x + r * x_stride + k);
#pragma GCC unroll 2
      for (int s = 0; s < kRowPanels; ++s) odd[r][s] = fma(w[s], xk, odd[r][s]);
    }
  }
  if (k < t.k) {
#pragma GCC unroll 2
    for (int s = 0; s < kRowPanels; ++s) {
      const RowPanelF32 w = Lines::even(pair + s * t.row_panel_bytes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) even[r][s] = fma(w, Lines::last_x(x + r * x_stride + k), even[r][s]);
      if constexpr (Lines::kIsOddUsedInLast) {
        const RowPanelF32 other = Lines::odd(pair + s * t.row_panel_bytes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) odd[r][s] = fma(other, Lines::last_x(x + r * x_stride + k), odd[r][s]);
      }
    }
  }

#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int s = 0; s < kRowPanels; ++s) {
      if (!t.last) {
        float* sums = t.sums + (r * kRowPanels + s) * kSumFloats;
        store_row_panel(sums, even[r][s]);
        store_row_panel(sums + kRowPanelRows, odd[r][s]);
        continue;
      }
      finish_row_panel(a, t.row + r, t.n + s * kRowPanelRows, Lines::total(even[r][s], odd[r][s]));
    }
  }
}

template <class Lines, int kRowPanels>
void run_rows(int rows, const Tile& t) {
  if constexpr (kTileRows >= 6) {
    if (rows == 6) return run_tile<Lines, 6, kRowPanels>(t);
    if (rows == 5) return run_tile<Lines, 5, kRowPanels>(t);
    if (rows == 4) return run_tile<Lines, 4, kRowPanels>(t);
  }
  if constexpr (kTileRows >= 3) {
    if (rows == 3) return run_tile<Lines, 3, kRowPanels>(t);
    if (rows == 2) return run_tile<Lines, 2, kRowPanels>(t);
  }
  run_tile<Lines, 1, kRowPanels>(t);
}

// Source of a chunk's weights: the packed weight itself, or blocks unpacked into scratch.
template <class LinesOf>
struct PlainWeight {
  using Lines = LinesOf;
  static constexpr bool kIsUnpacked = false;
  REDLINE_INLINE static void lines(const LinearArgs& a, int64_t n, int, int64_t k_begin, int64_t, Tile& t) {
    const int64_t pairs = (a.in_features + 1) / 2;
    // float32 stores one k per 64 bytes, so K is not padded to pairs.
    t.row_panel_bytes = Lines::kElementBytes == 4 ? a.in_features * 64 : pairs * 64;
    t.lines =
        static_cast<const uint8_t*>(a.weight) + n / kRowPanelRows * t.row_panel_bytes + k_begin / 2 * Lines::kPairBytes;
  }
};
/// Weights that are converted to float32 in scratch, a chunk at a time.
struct UnpackedWeight {
  using Lines = F32Lines;
  static constexpr bool kIsUnpacked = true;
  /// Returns the place of a tile's lines in scratch; row panels are kChunk lines apart.
  REDLINE_INLINE static float* lines_in_scratch(const LinearArgs& a, Tile& t) {
    auto* const lines = static_cast<uint8_t*>(a.scratch) + kSumBytes;
    t.lines = lines;
    t.row_panel_bytes = kChunk * kRowPanelRows * 4;
    return reinterpret_cast<float*>(lines);
  }
};
template <class Format>
struct BlockWeight : UnpackedWeight {
  using RowPanel = blocks::RowPanel<Format>;
  // Unpacks four k at a time, with the two roundings of blocks::unpack.
  REDLINE_INLINE static void unpack_block(const uint8_t* block, float* y) {
    constexpr int kGroupLines = Format::kGroup / 4;
    const VecI32 low = set1_i32(255), offset = set1_i32(Format::kOffset);
    for (int line = 0; line < Format::kElements / 4; ++line, y += 4 * kRowPanelRows) {
      const uint8_t* step = RowPanel::step(block, line / blocks::kStepLines);
#pragma GCC unroll 4
      for (int i = 0; i < kRowPanelVecs; ++i) {
        const VecI32 four = bytes_i32(RowPanel::line(step, line % blocks::kStepLines, i));
        const VecF32 scale = floats_f32(Format::Head::scale(block, line / kGroupLines, i));
        const VecF32 min = floats_f32(Format::Head::min(block, line / kGroupLines, i));
        const VecI32 codes[4] = {four & low, shr<8>(four) & low, shr<16>(four) & low, shr<24>(four)};
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
          const VecF32 product = scale * to_f32(codes[k] - offset);
          store(y + k * kRowPanelRows + i * kWidth, Format::kHasMins ? product - min : product, Full{});
        }
      }
    }
  }
  REDLINE_INLINE static void lines(const LinearArgs& a, int64_t n, int row_panels, int64_t k_begin, int64_t k,
                                   Tile& t) {
    float* lines = lines_in_scratch(a, t);
    const int64_t row_panel_bytes = a.in_features / Format::kElements * RowPanel::kBytes;
    for (int s = 0; s < row_panels; ++s) {
      const uint8_t* block = static_cast<const uint8_t*>(a.weight) + (n / kRowPanelRows + s) * row_panel_bytes +
                             k_begin / Format::kElements * RowPanel::kBytes;
      for (int64_t at = 0; at < k; at += Format::kElements, block += RowPanel::kBytes)
        unpack_block(block, lines + (s * kChunk + at) * kRowPanelRows);
    }
  }
};

/// A weight expanded to float32 once for all rows of a panel, because its shifts would take slots of the
/// multiplications.
template <class Plain>
struct ExpandedWeight : UnpackedWeight {
  REDLINE_INLINE static void lines(const LinearArgs& a, int64_t n, int row_panels, int64_t k_begin, int64_t k,
                                   Tile& t) {
    Tile plain = t;
    PlainWeight<Plain>::lines(a, n, row_panels, k_begin, k, plain);
    float* lines = lines_in_scratch(a, t);
    for (int s = 0; s < row_panels; ++s) {
      const uint8_t* pair = plain.lines + s * plain.row_panel_bytes;
      float* line = lines + s * kChunk * kRowPanelRows;
      for (int64_t i = 0; i < k; i += 2, pair += Plain::kPairBytes, line += 2 * kRowPanelRows) {
        store_row_panel(line, Plain::even(pair));
        store_row_panel(line + kRowPanelRows, Plain::odd(pair));
      }
    }
  }
};

template <class Format>
struct RowWeight : UnpackedWeight {
  REDLINE_INLINE static void lines(const LinearArgs& a, int64_t n, int row_panels, int64_t k_begin, int64_t k,
                                   Tile& t) {
    float* lines = lines_in_scratch(a, t);
    for (int s = 0; s < row_panels; ++s) {
      const uint8_t* row_panel =
          static_cast<const uint8_t*>(a.weight) + (n / kRowPanelRows + s) * Format::panel_bytes(a.in_features);
      const RowPanelF32 scale =
          load_row_panel(reinterpret_cast<const float*>(row_panel + Format::codes_bytes(a.in_features)));
      const uint8_t* four = row_panel + k_begin / 4 * 64;
      float* line = lines + s * kChunk * kRowPanelRows;
      for (int64_t i = 0; i < k; i += 4, four += 64, line += 4 * kRowPanelRows) {
        const RowPanelI32 codes = load_row_panel_i32(four);
#pragma GCC unroll 4
        for (int v = 0; v < kRowPanelVecs; ++v) {
          const VecI32 code[4] = {sar<24>(shl<24>(codes.v[v])), sar<24>(shl<16>(codes.v[v])),
                                  sar<24>(shl<8>(codes.v[v])), sar<24>(codes.v[v])};
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j)
            store(line + j * kRowPanelRows + v * kWidth, scale.v[v] * to_f32(code[j]), Full{});
        }
      }
    }
  }
};

/// Multiplies one chunk of two row panels, or of the last one, by rows [row, row + rows) of x.
template <class Weight>
void run_row_panels(Tile t, int row_panels, int64_t row, int64_t rows) {
  for (int64_t left = (rows + kTileRows - 1) / kTileRows; left > 0; --left) {
    const int64_t tile_rows = (rows + left - 1) / left;  // balanced: no pass for one leftover row
    t.row = row;
    if (row_panels == 1) {
      run_rows<typename Weight::Lines, 1>(static_cast<int>(tile_rows), t);
    } else {
      run_rows<typename Weight::Lines, kTileRowPanels>(static_cast<int>(tile_rows), t);
    }
    t.sums += tile_rows * row_panels * kSumFloats;
    row += tile_rows;
    rows -= tile_rows;
  }
}

template <class Weight>
void linear(const LinearArgs& a) {
  const bool is_blocked = a.rows >= kMinBlockedRows;
  const int64_t block_cols = is_blocked ? kBlockCols : kTileCols;
  // A single tile of rows does not spill: accumulators stay in registers over all of K.
  const bool whole = !Weight::kIsUnpacked && a.rows <= kTileRows;
  const int64_t chunk = whole ? max_i64(a.in_features, 1) : kChunk;
  const int64_t blocks = (a.rows + kBlockRows - 1) / kBlockRows;
  for (int64_t row = 0, rows, left = blocks; left > 0; row += rows, --left) {
    const int64_t share = (a.rows - row + left - 1) / left;
    rows = min_i64((share + kTileRows - 1) / kTileRows * kTileRows, a.rows - row);
    for (int64_t col = a.n_begin; col < a.n_end; col += block_cols) {
      const int64_t col_end = min_i64(col + block_cols, a.n_end);
      int64_t k = 0;
      do {  // runs once for K = 0 too: y = bias + residual
        Tile t;
        t.a = &a;
        t.k_begin = k;
        t.k = min_i64(chunk, a.in_features - k);
        t.first = k == 0;
        t.last = k + t.k == a.in_features;
        for (t.n = col; t.n < col_end; t.n += kTileCols) {
          const int row_panels = col_end - t.n > kRowPanelRows ? kTileRowPanels : 1;
          Weight::lines(a, t.n, row_panels, k, t.k, t);
          t.sums = static_cast<float*>(a.scratch) + (t.n - col) / kRowPanelRows * rows * kSumFloats;
          run_row_panels<Weight>(t, row_panels, row, rows);
        }
        k += t.k;
      } while (k < a.in_features);
    }
  }
}

/// Multiplies few rows directly with the packed weights, read as `Few`, and many rows with expanded weights.
template <class Plain, class Few = Plain>
void linear_expanding(const LinearArgs& a) {
  if (a.rows < Plain::kMinExpandRows) linear<PlainWeight<Few>>(a);
  else linear<ExpandedWeight<Plain>>(a);
}

}  // namespace

void fill_linear(CpuKernels& t) {
  t.linear[static_cast<int>(DType::kF32)] = linear<PlainWeight<F32Lines>>;
  t.linear[static_cast<int>(DType::kF16)] = linear_expanding<F16Lines, F16PairLines>;
  t.linear[static_cast<int>(DType::kBF16)] = linear_expanding<BF16Lines>;
#define REDLINE_SET(F) t.linear[static_cast<int>(DType::k##F)] = linear<BlockWeight<blocks::F>>;
  REDLINE_BLOCK_FORMATS(REDLINE_SET)
#undef REDLINE_SET
#define REDLINE_SET(F) t.linear[static_cast<int>(DType::k##F)] = linear<RowWeight<blocks::F>>;
  REDLINE_ROW_FORMATS(REDLINE_SET)
#undef REDLINE_SET
}

}  // namespace redline::REDLINE_ISA_NS
