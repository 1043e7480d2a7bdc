// y[m, n] = (sum_k x[m, k] w[n, k] + bias[n]) * gate[item(m), n] + residual[m, n]. A block has 128 columns of y, 16 for
// each consumer warp: a row panel of w, which streams through the ring in chunks of at most 4 KiB. Rows of x are
// converted once per chunk, by all warps, into shared memory.
//
// Linear multiplies on tensor cores: x is rounded to bfloat16; the codes of block formats are integers that bfloat16
// holds exactly, and scales and minima are applied to the float32 sums of a group, so weights are not rounded. With
// W8A8, x is rounded to int8, a scale for each row of a chunk, and sums of a chunk are exact integers.
// LinearF32 computes in float32 throughout, for --dtype f32 and for float32 and float16 weights.
//
// Both also multiply with many matrices: one for each head (the columns of a task lie in one head), or one for each
// expert, whose rows are a part of an order that a kernel before has made; and patches of a feature map (conv2d.h).
#pragma once

#include "kernels/tiles/fragment.h"
#include "kernels/tiles/kernel.h"
#include "kernels/tiles/panel.h"
#include "kernels/tiles/shared_tile.h"

namespace redline::tiles {

/// Number of columns of a task.
inline constexpr int kLinearCols = 16 * kConsumerWarps;

struct LinearArgs {
  PanelFormat format;
  const uint8_t* weight;
  const float* x;
  float* y;
  const float* bias;                  ///< [out_features] or nullptr; with experts, one bias for each
  const float* residual;              ///< like y, or nullptr
  const float* table;                 ///< [items, table_cols] or nullptr
  int32_t in_features, out_features;  ///< sizes of one matrix; of y's rows with heads or experts
  int32_t x_stride;                   ///< elements between rows of x
  int32_t head_features;              ///< columns of y that one matrix computes
  int32_t x_head_step;                ///< columns of x from head to head
  int64_t matrix_bytes;               ///< bytes from matrix to matrix
  /// Columns [table_begin, table_begin + out_features) belong to the columns of y.
  int32_t table_cols, table_begin;
  int32_t table_is_gate;  ///< true: table values are multiplied; false: they are added
  int32_t item_rows;      ///< rows of y that share a row of the table; an index in StepTables::rows
  // Routing of experts. Expert e has the places [offsets[e], offsets[e + 1]) of `order`.
  const int32_t* offsets;
  const int32_t* order;  ///< pairs of token and choice
  int32_t
      experts_per_token;   ///< row of x of a pair: pair / experts_per_token; 0: the place itself, and the pair is the
                           ///< row of y
  int32_t panel_bytes;     ///< bytes of the units of a row panel of w
  int32_t panel_stride;    ///< bytes from panel to panel: the units, and scales of rows
  int32_t chunk_bytes;     ///< bytes of a slot of the ring: whole units
  int32_t chunk_elements;  ///< elements of K in a chunk, at most kMaxChunk
};

namespace detail {

inline constexpr int kMaxChunk = 512;
/// Chunk of W8A8, whose codes fill a slot.
inline constexpr int kI8Chunk = 256;
static_assert(kI8Chunk * 16 == kSlotBytes);
/// Limit below which the largest element of a chunk of x makes the whole chunk zero.
inline constexpr float kI8Least = 0x1p-100f;

/// The part of a product that a task computes: rows, a matrix, and columns of it.
struct Product {
  int32_t row_begin, row_end;  ///< for experts: places in the order
  int32_t matrix;
  int32_t col_begin, col_end;  ///< columns of the matrix
};

/// A row of x in memory.
struct RowOfX {
  const float* from;
  TILE_FN Lanes<float> load(const Lanes<int>& k, const Lanes<bool>& mask, Warp& w) const {
    return w.load(from, k, mask);
  }
};

/// Rows of x and y in their order in memory; heads are side by side.
struct DenseRows {
  using Args = LinearArgs;
  static constexpr bool kLoaderWaits = false, kRoundsToI8 = true;
  static TILE_FN Product product(const LinearArgs& a, const TileRange& tile, Warp&) {
    const int32_t head = tile.col_begin / a.head_features, first = head * a.head_features;
    return {tile.row_begin, tile.row_end, head, tile.col_begin - first, tile.col_end - first};
  }
  static TILE_FN RowOfX x_row(const LinearArgs& a, const Product& p, const StepTables&, int row, Warp&) {
    return {a.x + int64_t{row} * a.x_stride + int64_t{p.matrix} * a.x_head_step};
  }
  static TILE_FN Lanes<int> y_row(const LinearArgs&, const Lanes<int>& row, const Lanes<bool>&, Warp&) { return row; }
  static TILE_FN int y_col(const LinearArgs& a, const Product& p) { return p.matrix * a.head_features; }
  static TILE_FN int bias_col(const LinearArgs& a, const Product& p) { return p.matrix * a.head_features; }
};

/// Rows by expert. Task i has columns i % n of expert i / n.
struct ExpertRows {
  using Args = LinearArgs;
  static constexpr bool kLoaderWaits = true;  ///< the loader reads the offsets
  static constexpr bool kRoundsToI8 = true;
  static TILE_FN Product product(const LinearArgs& a, const TileRange& tile, Warp& w) {
    const int32_t tiles = (a.out_features + kLinearCols - 1) / kLinearCols, expert = tile.index / tiles;
    const int32_t col = tile.index % tiles * kLinearCols, end = col + kLinearCols;
    return {w.load_uniform(a.offsets + expert), w.load_uniform(a.offsets + expert + 1), expert, col,
            end < a.out_features ? end : a.out_features};
  }
  static TILE_FN RowOfX x_row(const LinearArgs& a, const Product&, const StepTables&, int row, Warp& w) {
    const int32_t from = a.experts_per_token > 0 ? w.load_uniform(a.order + row) / a.experts_per_token : row;
    return {a.x + int64_t{from} * a.x_stride};
  }
  static TILE_FN Lanes<int> y_row(const LinearArgs& a, const Lanes<int>& row, const Lanes<bool>& mask, Warp& w) {
    return a.experts_per_token > 0 ? row : w.load(a.order, row, mask);
  }
  static TILE_FN int y_col(const LinearArgs&, const Product&) { return 0; }
  static TILE_FN int bias_col(const LinearArgs& a, const Product& p) { return p.matrix * a.out_features; }
};

/// DenseRows or ExpertRows, as the arguments select: a persistent step contains the code of a product once.
struct TaskRows {
  using Args = LinearArgs;
  static constexpr bool kLoaderWaits = false;  ///< the value of the actual kernel is used
  static constexpr bool kRoundsToI8 = true;
  static TILE_FN Product product(const LinearArgs& a, const TileRange& tile, Warp& w) {
    return a.offsets ? ExpertRows::product(a, tile, w) : DenseRows::product(a, tile, w);
  }
  static TILE_FN RowOfX x_row(const LinearArgs& a, const Product& p, const StepTables& step, int row, Warp& w) {
    return a.offsets ? ExpertRows::x_row(a, p, step, row, w) : DenseRows::x_row(a, p, step, row, w);
  }
  static TILE_FN Lanes<int> y_row(const LinearArgs& a, const Lanes<int>& row, const Lanes<bool>& mask, Warp& w) {
    return a.offsets ? ExpertRows::y_row(a, row, mask, w) : row;
  }
  static TILE_FN int y_col(const LinearArgs& a, const Product& p) { return a.offsets ? 0 : DenseRows::y_col(a, p); }
  static TILE_FN int bias_col(const LinearArgs& a, const Product& p) {
    return a.offsets ? ExpertRows::bias_col(a, p) : DenseRows::bias_col(a, p);
  }
};

/// Returns the number of passes over `pass_rows` rows. Loader and consumers count the same chunks: all panels in each
/// pass.
TILE_FN int linear_passes(const Product& p, int pass_rows) {
  return (p.row_end - p.row_begin + pass_rows - 1) / pass_rows;
}

TILE_FN void load_panels(const LinearArgs& a, const Product& product, int pass_rows, Warp& w, RingPosition& ring) {
  const int first = product.col_begin / 16, panels = (product.col_end - product.col_begin + 15) / 16;
  const uint8_t* const weight = a.weight + product.matrix * a.matrix_bytes;
  for (int pass = 0; pass < linear_passes(product, pass_rows); ++pass)
    for (int at = 0; at < a.panel_bytes; at += a.chunk_bytes, ring.advance(w)) {
      const int bytes = a.panel_bytes - at < a.chunk_bytes ? a.panel_bytes - at : a.chunk_bytes;
      const int stage = Ring::acquire(w, ring);
      if (w.is_abandoned()) return;  // no copy may arrive after the block has left
      Ring::begin_fill(w, stage, bytes * panels);
      for (int p = 0; p < panels; ++p)
        Ring::fill(w, stage, p, weight + int64_t{first + p} * a.panel_stride + at, bytes);
      Ring::end_fill(w, stage);
    }
}

/// Returns the scales of rows of a panel of the product's matrix.
TILE_FN Lanes<float> scales_of(const LinearArgs& a, const Product& p, int panel, const Lanes<int>& row, Warp& w) {
  const uint8_t* from = a.weight + p.matrix * a.matrix_bytes + int64_t{panel} * a.panel_stride;
  return row_scales(a.format, from, a.panel_stride, row, true, w);
}

/// Applies the epilogue and stores 32 values of y, by lane. `col` is a column of the matrix.
template <class Rows>
TILE_FN void finish(const LinearArgs& a, const Product& p, const StepTables& step, Warp& w, const Lanes<int>& row,
                    const Lanes<int>& col, Lanes<float> value) {
  const Lanes<bool> mask = (row < Lanes<int>(p.row_end)) & (col < Lanes<int>(p.col_end));
  const Lanes<int> y_row = Rows::y_row(a, row, mask, w);
  if (a.bias) value = value + w.load(a.bias + Rows::bias_col(a, p), col, mask);
  // Rows of a dense product are adjacent; rows of an expert's pairs may be anywhere.
  const Lanes<int64_t> at =
      convert<int64_t>(y_row) * int64_t{a.out_features} + convert<int64_t>(col + Rows::y_col(a, p));
  if (a.table) {
    const Lanes<int> item = y_row / step.rows[a.item_rows];
    const Lanes<float> term = w.load(a.table + a.table_begin, item * a.table_cols + col, mask);
    value = a.table_is_gate ? value * term : value + term;
  }
  if (a.residual) value = value + w.load(a.residual, at, mask);
  w.store(a.y, at, value, mask);
}

}  // namespace detail

/// A product kernel. `kRows`: rows of a pass over the weight; sums do not depend on it.
template <class Rows, int kRows = 64>
struct BasicLinear {
  using Args = typename Rows::Args;
  static constexpr bool kLoads = true, kLoaderWaits = Rows::kLoaderWaits;
  static constexpr int kPassRows = kRows, kTiles = kPassRows / 8;
  using X = SharedTile<kPassRows, detail::kMaxChunk, 2>;
  static_assert(X::kBytes <= kActivationBytes);

  static TILE_FN void load(const Args& a, const TileRange& tile, Warp& w, RingPosition& ring) {
    detail::load_panels(a, Rows::product(a, tile, w), kPassRows, w, ring);
  }

  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w,
                              RingPosition& ring) {
    const X x{0};
    const detail::Product product = Rows::product(a, tile, w);
    const int panel = product.col_begin / 16 + w.index(), num_panels = (product.col_end + 15) / 16;
    for (int pass = 0; pass < detail::linear_passes(product, kPassRows); ++pass) {
      const int first = product.row_begin + pass * kPassRows;
      const int rows = product.row_end - first < kPassRows ? product.row_end - first : kPassRows,
                tiles = (rows + 7) / 8;
      FragmentC sums[kTiles];
      for (int i = 0; i < kTiles; ++i) sums[i] = zero_c();
      for (int chunk = 0, k = 0; chunk * a.chunk_bytes < a.panel_bytes; ++chunk, k += a.chunk_elements) {
        const int elements = a.in_features - k < a.chunk_elements ? a.in_features - k : a.chunk_elements;
        w.consumer_sync();  // the previous rows are no longer read
        if (is_i8(a))
          stage_codes(a, product, step, first, rows, k, elements, w,
                      [](int row, const Lanes<int>& column) { return Codes{0}.at(row, column); });
        else
          stage_rows(a, product, step, first, rows, k, elements, w,
                     [&](int row, const Lanes<int>& column) { return x.at(row, column); });
        w.consumer_sync();
        const int stage = Ring::wait(w, ring);
        if (panel < num_panels) {
          if (is_i8(a)) multiply_codes(stage, elements, tiles, w, sums);
          else if (a.format.is_plain()) multiply_plain(a, stage, elements, tiles, x, w, sums);
          else multiply_blocks(a, stage, elements, tiles, x, w, sums);
        }
        Ring::release(w, ring);
      }
      if (panel < num_panels) store(a, product, step, first, panel, tiles, w, sums);
    }
  }

 private:
  /// Loads elements [k, k + 16) of the 8 rows of tile i.
  static TILE_FN FragmentB rows_of(const X& x, Warp& w, int i, int k) {
    const Lanes<int> lane = w.lane();
    const Lanes<uint32_t> at = x.at(fragment_group(lane) + 8 * i, fragment_thread(lane) * 4 + k);
    return {{w.load_shared<uint32_t>(at), w.load_shared<uint32_t>(at + 4u)}};
  }

  static TILE_FN void multiply_plain(const Args& a, int stage, int elements, int tiles, const X& x, Warp& w,
                                     FragmentC (&sums)[kTiles]) {
    const uint32_t slot = Ring::slot(stage, w.index());
    const auto words = [&](const Lanes<int>& offset) {
      return w.load_shared<uint32_t>(convert<uint32_t>(offset) + slot);
    };
    const Panel<decltype(words)> weights(a.format, words);
    const Lanes<int> g = fragment_group(w.lane()), line = fragment_thread(w.lane()) * 2;
    const int lines = (elements + 1) / 2;
    for (int k = 0; k < elements; k += 16) {
      FragmentA fragment;
      for (int i = 0; i < 4; ++i) fragment.a[i] = weights.plain_word(g + 8 * (i % 2), line + (k / 2 + i / 2), lines);
      TILE_UNROLL
      for (int i = 0; i < kTiles; ++i)
        if (i < tiles) mma_bf16(w, fragment, rows_of(x, w, i, k), sums[i]);
    }
  }

  /// The codes of x in shared memory, stored like x.
  using Codes = SharedTile<kPassRows, detail::kI8Chunk, 1>;

  static TILE_FN void multiply_codes(int stage, int elements, int tiles, Warp& w, FragmentC (&sums)[kTiles]) {
    const Lanes<int> g = fragment_group(w.lane()), t = fragment_thread(w.lane());
    FragmentSums products[kTiles];
    TILE_UNROLL
    for (int i = 0; i < kTiles; ++i) products[i] = zero_sums();
    TILE_ROLLED
    for (int k = 0; k < elements; k += 32) {
      const FragmentA fragment = codes_of(stage, k, w);
      TILE_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        if (i >= tiles) continue;
        const Lanes<uint32_t> at = Codes{0}.at(g + 8 * i, t * 4 + k);
        mma_i8(w, fragment, {{w.load_shared<uint32_t>(at), w.load_shared<uint32_t>(at + 16u)}}, products[i]);
      }
    }
    add_products(products, tiles, w, sums);
  }

  // Members for products of warp groups too (wide_linear.h).
 protected:
  /// Returns true if x is rounded to int8. Convolutions never are: their kernels have no registers left.
  static TILE_FN bool is_i8(const Args& a) { return Rows::kRoundsToI8 && a.format.is_i8(); }

  /// Offset in shared memory of the scales of rows of x, after the codes.
  static constexpr uint32_t kScales = static_cast<uint32_t>(kPassRows * detail::kI8Chunk);
  static_assert(kScales + kPassRows * 4 <= kActivationBytes);

  /// Loads elements [k, k + 32) of the rows g and g + 8 of the warp's panel, in W8A8.
  static TILE_FN FragmentA codes_of(int stage, int k, Warp& w) {
    const Lanes<int> at = (fragment_thread(w.lane()) + k / 4) * 64 + fragment_group(w.lane()) * 4;
    const Lanes<uint32_t> offset = convert<uint32_t>(at) + Ring::slot(stage, w.index());
    return {{w.load_shared<uint32_t>(offset), w.load_shared<uint32_t>(offset + 32u),
             w.load_shared<uint32_t>(offset + 256u), w.load_shared<uint32_t>(offset + 288u)}};
  }

  /// Adds the exact sums of a chunk.
  static TILE_FN void add_products(const FragmentSums (&products)[kTiles], int tiles, Warp& w,
                                   FragmentC (&sums)[kTiles]) {
    const Lanes<uint32_t> at = convert<uint32_t>(fragment_thread(w.lane()) * 8) + kScales;
    TILE_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      if (i >= tiles) continue;
      const Lanes<float> scale[2] = {w.load_shared<float>(at + static_cast<uint32_t>(32 * i)),
                                     w.load_shared<float>(at + static_cast<uint32_t>(32 * i + 4))};
      TILE_UNROLL
      for (int c = 0; c < 4; ++c) sums[i].c[c] = fma_of(convert<float>(products[i].c[c]), scale[c % 2], sums[i].c[c]);
    }
  }

  /// Stages rows of x like stage_rows(), as int8: four codes, of columns from a multiple of 4 on, at place(row,
  /// column), and the scale of each row at kScales. scale = max |x| / 127, NaN where x is not finite; code = x / scale,
  /// rounded to even.
  template <class Place>
  static TILE_FN void stage_codes(const Args& a, const detail::Product& product, const StepTables& step, int first,
                                  int rows, int k, int elements, Warp& w, const Place& place) {
    constexpr int kLoads = detail::kI8Chunk / (4 * kWarpLanes);
    constexpr float kRounds = 12582912.0f;  // 1.5 * 2^23: the sum ends in the nearest integer
    for (int row = w.index(); row < (rows + 7) / 8 * 8; row += kConsumerWarps) {
      const auto from = Rows::x_row(a, product, step, row < rows ? first + row : product.row_begin, w);
      Lanes<float> x[4 * kLoads], most = 0.0f, wrong = 0.0f;
      TILE_UNROLL
      for (int i = 0; i < 4 * kLoads; ++i) {
        const Lanes<int> at = w.lane() * 4 + (i / 4 * 4 * kWarpLanes + i % 4);
        x[i] = from.load(at + k, (at < Lanes<int>(elements)) & Lanes<bool>(row < rows), w);
        most = max_of(most, max_of(x[i], -x[i]));
        wrong = wrong + x[i] * 0.0f;  // 0 if x is finite
      }
      most = warp_max(w, most);
      const Lanes<float> scale = most / 127.0f + warp_sum(w, wrong);
      const Lanes<float> inverse =
          select(most >= Lanes<float>(detail::kI8Least), Lanes<float>(127.0f) / most, Lanes<float>(0.0f));
      TILE_UNROLL
      for (int j = 0; j < kLoads; ++j) {
        Lanes<uint32_t> codes = 0u;
        TILE_UNROLL
        for (int i = 0; i < 4; ++i) {
          const Lanes<uint32_t> bits = float_to_bits(fma_of(x[4 * j + i], inverse, Lanes<float>(kRounds)));
          codes = codes | ((bits & 255u) << static_cast<uint32_t>(8 * i));
        }
        w.store_shared(place(row, w.lane() * 4 + j * 4 * kWarpLanes), codes);
      }
      w.store_shared(Lanes<uint32_t>(kScales + static_cast<uint32_t>(row * 4)), scale, w.lane() < Lanes<int>(1));
    }
  }

  /// Stages rows [first, first + rows) of x, columns from k on, as bfloat16 at place(row, column); zeros up to whole
  /// tiles.
  template <class Place>
  static TILE_FN void stage_rows(const Args& a, const detail::Product& product, const StepTables& step, int first,
                                 int rows, int k, int elements, Warp& w, const Place& place) {
    for (int row = w.index(); row < (rows + 7) / 8 * 8; row += kConsumerWarps) {
      const auto from = Rows::x_row(a, product, step, row < rows ? first + row : product.row_begin, w);
      for (int col = 0; col < (elements + 31) / 32 * 32; col += 2 * kWarpLanes) {
        const Lanes<int> at = w.lane() * 2 + col;
        const Lanes<float> low = from.load(at + k, (at < Lanes<int>(elements)) & Lanes<bool>(row < rows), w);
        const Lanes<float> high = from.load(at + (k + 1), (at + 1 < Lanes<int>(elements)) & Lanes<bool>(row < rows), w);
        w.store_shared(place(row, at), pack_bf16(low, high), at < Lanes<int>(detail::kMaxChunk));
      }
    }
  }

  /// Packs two codes, which are exact in bfloat16.
  static TILE_FN Lanes<uint32_t> pack_codes(const Lanes<float>& low, const Lanes<float>& high) {
    return (float_to_bits(low) >> 16u) | (float_to_bits(high) & 0xffff0000u);
  }

  /// Decodes the group of elements that begins at k: two times 16 codes of rows g and g + 8, and their factors.
  template <class Weights>
  static TILE_FN void decode_group(const Weights& weights, const PanelFormat& f, int k, const Lanes<int>& g,
                                   const Lanes<int>& t, FragmentA (&codes)[2], Lanes<float> (&scale)[2],
                                   Lanes<float> (&min)[2]) {
    const int unit = k / f.elements * f.unit_bytes, within = k % f.elements;
    TILE_UNROLL
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i) codes[half].a[i] = 0u;
      if (half >= f.group / 16) continue;
      const int element = within + 16 * half;
      TILE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Lanes<uint32_t> q = weights.codes(unit, element / 32, g + 8 * i, t + element % 32 / 4);
        codes[half].a[i] = pack_codes(weights.number(q, 0), weights.number(q, 1));
        codes[half].a[i + 2] = pack_codes(weights.number(q, 2), weights.number(q, 3));
      }
    }
    for (int i = 0; i < 2; ++i) {
      scale[i] = weights.scale(unit, g + 8 * i, within / f.group);
      min[i] = f.has_mins ? weights.min(unit, g + 8 * i, within / f.group) : Lanes<float>(0.0f);
    }
  }

  static TILE_FN void store(const Args& a, const detail::Product& product, const StepTables& step, int first, int panel,
                            int tiles, Warp& w, const FragmentC (&sums)[kTiles]) {
    const Lanes<int> g = fragment_group(w.lane()), t = fragment_thread(w.lane());
    Lanes<float> scale[2];
    for (int i = 0; i < 2; ++i) scale[i] = detail::scales_of(a, product, panel, g + 8 * i, w);
    TILE_UNROLL
    for (int i = 0; i < kTiles; ++i) TILE_UNROLL
    for (int c = 0; c < 4; ++c)
      if (i < tiles)
        detail::finish<Rows>(a, product, step, w, t * 2 + (first + 8 * i + c % 2), g + (16 * panel + 8 * (c / 2)),
                             sums[i].c[c] * scale[c / 2]);
  }

 private:
  static TILE_FN void multiply_blocks(const Args& a, int stage, int elements, int tiles, const X& x, Warp& w,
                                      FragmentC (&sums)[kTiles]) {
    const PanelFormat& f = a.format;
    const uint32_t slot = Ring::slot(stage, w.index());
    const auto words = [&](const Lanes<int>& offset) {
      return w.load_shared<uint32_t>(convert<uint32_t>(offset) + slot);
    };
    const Panel<decltype(words)> weights(f, words);
    const Lanes<int> g = fragment_group(w.lane()), t = fragment_thread(w.lane());
    const Lanes<uint32_t> one = 0x3f803f80u;
    const FragmentA ones{{one, one, one, one}};
    for (int k = 0; k < elements; k += f.group) {
      FragmentA codes[2];
      Lanes<float> scale[2], min[2];
      decode_group(weights, f, k, g, t, codes, scale, min);
      TILE_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        if (i >= tiles) continue;
        FragmentC products = zero_c(), totals = zero_c();
        TILE_UNROLL
        for (int half = 0; half < 2; ++half) {
          if (half >= f.group / 16) continue;
          const FragmentB rows = rows_of(x, w, i, k + 16 * half);
          mma_bf16(w, codes[half], rows, products);
          if (f.has_mins) mma_bf16(w, ones, rows, totals);
        }
        for (int c = 0; c < 4; ++c) {
          sums[i].c[c] = sums[i].c[c] + scale[c / 2] * products.c[c];
          if (f.has_mins) sums[i].c[c] = sums[i].c[c] - min[c / 2] * totals.c[c];
        }
      }
    }
  }
};

template <class Rows>
struct BasicLinearF32 {
  using Args = typename Rows::Args;
  static constexpr bool kLoads = true, kLoaderWaits = Rows::kLoaderWaits;
  static constexpr int kPassRows = 8;
  static constexpr uint32_t kRows = 0;  ///< offset of x in shared memory, [kPassRows][kMaxChunk]
  static_assert(kPassRows * detail::kMaxChunk * 4 <= kActivationBytes);

  static TILE_FN void load(const Args& a, const TileRange& tile, Warp& w, RingPosition& ring) {
    detail::load_panels(a, Rows::product(a, tile, w), kPassRows, w, ring);
  }

  /// Computes a tile. Lane (half, row) sums elements 8 i + 4 half .. + 3 of its row of w; the halves are added at the
  /// end.
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w,
                              RingPosition& ring) {
    const detail::Product product = Rows::product(a, tile, w);
    const int panel = product.col_begin / 16 + w.index(), num_panels = (product.col_end + 15) / 16;
    const Lanes<int> row = w.lane() % 16, half = w.lane() / 16;
    for (int pass = 0; pass < detail::linear_passes(product, kPassRows); ++pass) {
      const int first = product.row_begin + pass * kPassRows;
      const int rows = product.row_end - first < kPassRows ? product.row_end - first : kPassRows;
      Lanes<float> sums[kPassRows];
      for (int r = 0; r < kPassRows; ++r) sums[r] = 0.0f;
      for (int chunk = 0, k = 0; chunk * a.chunk_bytes < a.panel_bytes; ++chunk, k += a.chunk_elements) {
        const int elements = a.in_features - k < a.chunk_elements ? a.in_features - k : a.chunk_elements;
        w.consumer_sync();
        stage_rows(a, product, step, first, rows, k, elements, w);
        w.consumer_sync();
        const int stage = Ring::wait(w, ring);
        if (panel < num_panels) {
          const uint32_t slot = Ring::slot(stage, w.index());
          const auto words = [&](const Lanes<int>& offset) {
            return w.load_shared<uint32_t>(convert<uint32_t>(offset) + slot);
          };
          const Panel<decltype(words)> weights(a.format, words);
          const int per_line = a.format.planes == Planes::kF32 ? 1 : 2, lines = (elements + per_line - 1) / per_line;
          for (int i = 0; 8 * i < elements; ++i) {
            Lanes<float> v[4];
            weights.quad(row, half + 2 * i, lines, v);
            for (int r = 0; r < kPassRows; ++r) {
              if (r >= rows) continue;
              Lanes<float> x[4];
              w.load_shared4(
                  convert<uint32_t>(half * 16) + (kRows + static_cast<uint32_t>(r * detail::kMaxChunk + 8 * i) * 4), x);
              for (int e = 0; e < 4; ++e) sums[r] = sums[r] + v[e] * x[e];
            }
          }
        }
        Ring::release(w, ring);
      }
      if (panel >= num_panels) continue;
      const Lanes<float> scale = detail::scales_of(a, product, panel, row, w);
      for (int r = 0; r < kPassRows; ++r) {
        if (r >= rows) continue;
        const Lanes<float> all = (sums[r] + w.shuffle_xor(sums[r], 16)) * scale;
        detail::finish<Rows>(a, product, step, w,
                             select(half == Lanes<int>(0), Lanes<int>(first + r), Lanes<int>(product.row_end)),
                             row + 16 * panel, all);
      }
    }
  }

 private:
  static TILE_FN void stage_rows(const Args& a, const detail::Product& product, const StepTables& step, int first,
                                 int rows, int k, int elements, Warp& w) {
    for (int r = w.index(); r < rows; r += kConsumerWarps) {
      const auto from = Rows::x_row(a, product, step, first + r, w);
      for (int col = 0; col < (elements + 7) / 8 * 8; col += kWarpLanes) {
        const Lanes<int> at = w.lane() + col;
        const Lanes<float> x = from.load(at + k, at < Lanes<int>(elements), w);
        w.store_shared(convert<uint32_t>(at * 4) + (kRows + static_cast<uint32_t>(r * detail::kMaxChunk) * 4), x,
                       at < Lanes<int>(detail::kMaxChunk));
      }
    }
  }
};

using Linear = BasicLinear<detail::DenseRows>;
using LinearF32 = BasicLinearF32<detail::DenseRows>;
using ExpertLinear = BasicLinear<detail::ExpertRows>;
using ExpertLinearF32 = BasicLinearF32<detail::ExpertRows>;

/// The form of a kernel in a persistent step, which has few rows: it has less code and needs fewer registers.
template <class Kernel>
struct TaskForm {
  using Type = Kernel;
};
template <>
struct TaskForm<Linear> {
  using Type = BasicLinear<detail::TaskRows, 16>;
};
template <>
struct TaskForm<LinearF32> {
  using Type = BasicLinearF32<detail::TaskRows>;
};

}  // namespace redline::tiles
