// Softmax attention of query rows over a paged cache, one KV head and its group of query heads.
//
// Online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135) over blocks of
// kBlock positions. A line is one (row, head of the group); kLines of them share each block of K and V, which is turned
// once into two float32 tiles: K transposed, [head_dim][kBlock], so that scores are broadcast multiply-adds with one
// lane per position, and V as it is, [kBlock][head_dim].
//
// The same bits for a row whatever other rows are in the call: blocks start at multiples of kBlock in absolute
// positions, a line skips the blocks where it sees nothing, and within a block each sum of a line runs in one order
// (scores over head_dim, values over the positions that the line sees), however lines are tiled. So prefill may be cut
// anywhere.
//
// Error, with e = 2^-24: scores are off by at most (head_dim + 2) e scale |q| |k|, which enters y as a relative error
// of each weight; the weighted sum adds (positions + blocks + 8) e max|v|. A NaN or +inf score makes its line NaN; -inf
// has no weight. Positions that a line does not see are not read for it, whatever they hold.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int kBlock = 32;
constexpr int kBlockVecs = kBlock / kWidth;
constexpr int kLines = 64;
constexpr int kMaxHeadDim = 512;
/// Lines in one register tile: kTile * kBlockVecs accumulators beside the operands.
constexpr int kTile = kWidth == 16 ? 4 : kWidth == 8 ? 2 : 1;
constexpr int kValueVecs = 4;

/// The scratch of one call.
struct Tiles {
  float keys[kMaxHeadDim * kBlock];
  float values[kBlock * kMaxHeadDim];
  float sums[kLines * kMaxHeadDim];  ///< weighted values so far, `width` apart
  float weights[kTile * kBlock];
  float max[kLines];
  float total[kLines];
};
static_assert(sizeof(Tiles) <= kScratchBytes);

/// What a line sees: positions [begin, end).
struct Span {
  int64_t begin, end;
};
Span visible(const AttentionArgs& a, int64_t line) {
  const int64_t position = a.first_position + line / a.group;
  return {a.window > 0 ? max_i64(0, position + 1 - a.window) : 0, position + 1};
}
const float* query(const AttentionArgs& a, int64_t line) {
  return a.q + line / a.group * a.q_stride + line % a.group * a.head_dim;
}

/// Fills both tiles for positions [block, block + kBlock); those outside `span` are zeros.
template <class Element>
void load_block(const AttentionArgs& a, int64_t block, Span span, int64_t width, Tiles& t) {
  const int shift = __builtin_ctzll(static_cast<uint64_t>(a.cache.page_tokens));
  const int64_t mask = a.cache.page_tokens - 1;
  int64_t offset[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    const int64_t p = block + i;
    offset[i] = -1;
    if (p >= span.begin && p < span.end)
      offset[i] = a.pages[p >> shift] * a.cache.page_stride + (p & mask) * a.cache.token_stride;
  }
  const Element* k = static_cast<const Element*>(a.cache.k);
  const Element* v = static_cast<const Element*>(a.cache.v);
  for (int i = 0; i < kBlock; i += kWidth) {
    for_lanes(a.head_dim, [&](int64_t d, auto lanes) {
      VecF32 rows[kWidth];
      for (int j = 0; j < kWidth; ++j) rows[j] = offset[i + j] < 0 ? zero_f32() : load(k + offset[i + j] + d, lanes);
      transpose(rows);
      for (int j = 0; j < kWidth; ++j) store(t.keys + (d + j) * kBlock + i, rows[j], Full{});
    });
  }
  for (int i = 0; i < kBlock; ++i) {
    for_lanes(a.head_dim, [&](int64_t d, auto lanes) {
      store(t.values + i * width + d, offset[i] < 0 ? zero_f32() : load(v + offset[i] + d, lanes), Full{});
    });
  }
}

/// weights[r][i] = scale * q[r] . k[i] for the whole block.
template <int rows>
void scores(const float* const* q, int64_t head_dim, float scale, Tiles& t) {
  VecF32 sum[rows][kBlockVecs];
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < kBlockVecs; ++j) sum[r][j] = zero_f32();
  for (int64_t d = 0; d < head_dim; ++d) {
    for (int j = 0; j < kBlockVecs; ++j) {
      const VecF32 keys = load(t.keys + d * kBlock + j * kWidth, Full{});
      for (int r = 0; r < rows; ++r) sum[r][j] = fma(set1(q[r][d]), keys, sum[r][j]);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < kBlockVecs; ++j) store(t.weights + r * kBlock + j * kWidth, sum[r][j] * set1(scale), Full{});
}

/// Scores of one line into weights exp(score - max); what it gathered so far is rescaled when the maximum grows.
/// The line sees [begin, end) of the block. False: every score was -inf, nothing to add.
bool soften(float* weights, int begin, int end, float& max_so_far, float& total, float* sums, int64_t width) {
  for (int i = 0; i < begin; ++i) weights[i] = -__builtin_inff();
  for (int i = end; i < kBlock; ++i) weights[i] = -__builtin_inff();
  VecF32 high = load(weights, Full{});
  for (int j = 1; j < kBlockVecs; ++j) high = max(high, load(weights + j * kWidth, Full{}));
  const float block_max = reduce_max(high);
  if (block_max == -__builtin_inff()) {
    // max() may have dropped a NaN; it must still reach the result.
    for (int i = begin; i < end; ++i) total = weights[i] != weights[i] ? weights[i] : total;
    return false;
  }
  if (!(block_max <= max_so_far)) {
    const float shrink = exp_f32(max_so_far - block_max);
    total *= shrink;
    for (int64_t d = 0; d < width; d += kWidth) store(sums + d, load(sums + d, Full{}) * set1(shrink), Full{});
    max_so_far = block_max;
  }
  VecF32 sum = zero_f32();
  for (int j = 0; j < kBlockVecs; ++j) {
    const VecF32 w = exp(load(weights + j * kWidth, Full{}) - set1(max_so_far));
    store(weights + j * kWidth, w, Full{});
    sum = sum + w;
  }
  total += reduce_add(sum);
  return true;
}

/// sums[r] += weights[r][i] * v[i] for i in [begin, end), `vecs` vectors of head_dim.
template <int rows, int vecs>
REDLINE_INLINE void add_values_at(float* const* sums, int begin, int end, int64_t d, int64_t width, const Tiles& t,
                                  const float* weights) {
  VecF32 sum[rows][vecs];
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < vecs; ++j) sum[r][j] = load(sums[r] + d + j * kWidth, Full{});
  for (int i = begin; i < end; ++i) {
    for (int j = 0; j < vecs; ++j) {
      const VecF32 values = load(t.values + i * width + d + j * kWidth, Full{});
      for (int r = 0; r < rows; ++r) sum[r][j] = fma(set1(weights[r * kBlock + i]), values, sum[r][j]);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < vecs; ++j) store(sums[r] + d + j * kWidth, sum[r][j], Full{});
}
template <int rows>
void add_values(float* const* sums, int begin, int end, int64_t width, const Tiles& t, const float* weights) {
  int64_t d = 0;
  for (; d + kValueVecs * kWidth <= width; d += kValueVecs * kWidth)
    add_values_at<rows, kValueVecs>(sums, begin, end, d, width, t, weights);
  for (; d < width; d += kWidth) add_values_at<rows, 1>(sums, begin, end, d, width, t, weights);
}

/// One block for `rows` lines, `line[r]` counted from `first`.
template <int rows>
void tile_step(const AttentionArgs& a, int64_t first, const int* line, int64_t block, int64_t width, Tiles& t) {
  const float* q[rows];
  for (int r = 0; r < rows; ++r) q[r] = query(a, first + line[r]);
  scores<rows>(q, a.head_dim, a.scale, t);
  float* sums[rows];
  int begin[rows], end[rows];
  bool together = true;
  for (int r = 0; r < rows; ++r) {
    const Span span = visible(a, first + line[r]);
    sums[r] = t.sums + line[r] * width;
    begin[r] = static_cast<int>(max_i64(0, span.begin - block));
    end[r] = static_cast<int>(min_i64(kBlock, span.end - block));
    if (!soften(t.weights + r * kBlock, begin[r], end[r], t.max[line[r]], t.total[line[r]], sums[r], width)) end[r] = 0;
    together = together && begin[r] == begin[0] && end[r] == end[0];
  }
  if (together) {
    add_values<rows>(sums, begin[0], end[0], width, t, t.weights);
  } else {
    for (int r = 0; r < rows; ++r) add_values<1>(sums + r, begin[r], end[r], width, t, t.weights + r * kBlock);
  }
}
/// The same for a count known only at run time, 1 .. rows.
template <int rows>
void step(const AttentionArgs& a, int64_t first, const int* line, int count, int64_t block, int64_t width, Tiles& t) {
  if (count == rows) return tile_step<rows>(a, first, line, block, width, t);
  if constexpr (rows > 1) step<rows - 1>(a, first, line, count, block, width, t);
}

template <class Element>
void attention(const AttentionArgs& a) {
  Tiles& t = *static_cast<Tiles*>(a.scratch);
  const int64_t width = (a.head_dim + kWidth - 1) / kWidth * kWidth;
  const int64_t num_lines = a.rows * a.group;
  for (int64_t first = 0; first < num_lines; first += kLines) {
    const int lines = static_cast<int>(min_i64(kLines, num_lines - first));
    // Rows are in order of position, so the first line sees the earliest one and the last the latest.
    const Span span = {visible(a, first).begin, visible(a, first + lines - 1).end};
    for (int l = 0; l < lines; ++l) {
      t.max[l] = -__builtin_inff();
      t.total[l] = 0.0f;
      for (int64_t d = 0; d < width; d += kWidth) store(t.sums + l * width + d, zero_f32(), Full{});
    }
    for (int64_t block = span.begin / kBlock * kBlock; block < span.end; block += kBlock) {
      load_block<Element>(a, block, span, width, t);
      int waiting[kTile], count = 0;
      for (int l = 0; l < lines; ++l) {
        const Span seen = visible(a, first + l);
        if (seen.end <= block || seen.begin >= block + kBlock) continue;
        waiting[count++] = l;
        if (count < kTile) continue;
        step<kTile>(a, first, waiting, count, block, width, t);
        count = 0;
      }
      if (count > 0) step<kTile>(a, first, waiting, count, block, width, t);
    }
    for (int l = 0; l < lines; ++l) {
      const int64_t line = first + l;
      float* y = a.y + line / a.group * a.y_stride + line % a.group * a.head_dim;
      const VecF32 scale = set1(1.0f / t.total[l]);
      for_lanes(a.head_dim,
                [&](int64_t d, auto lanes) { store(y + d, load(t.sums + l * width + d, Full{}) * scale, lanes); });
    }
  }
}

}  // namespace

void fill_attention(CpuKernels& table) {
  table.attention[static_cast<int>(KvFormat::kF32)] = attention<float>;
  table.attention[static_cast<int>(KvFormat::kF16)] = attention<F16>;
  table.attention[static_cast<int>(KvFormat::kBF16)] = attention<BF16>;
}

}  // namespace redline::REDLINE_ISA_NS
