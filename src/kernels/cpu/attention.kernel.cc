// Softmax attention of query rows over a paged cache, one KV head and its group of query heads.
//
// Online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135) over the pages of a
// chunk, then over chunks. A line is one (row, head of the group). Up to kTile lines go through a page together, so a
// decoding group reads its keys and values once; for many lines a page is first widened to float32 in scratch.
//
// The same bits for a row whatever other rows are in the call and wherever the positions are cut: chunks and pages start
// at fixed positions, a line skips those where it sees nothing, and within a page each sum of a line runs in one order
// (scores over pairs of head_dim, values over the pairs of positions that the line sees), however lines are tiled.
//
// Error, with e = 2^-24: scores are off by at most (head_dim + 2) e scale |q| |k|, which enters y as a relative error
// of each weight; the weighted sum adds (positions + blocks + 8) e max|v|. A NaN or +inf score makes its line NaN; -inf
// has no weight. Positions that a line does not see cannot reach it, whatever they hold.
#include "kernels/cpu/attention_page.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int kPage = static_cast<int>(kKvPageTokens);
constexpr int kBlock = static_cast<int>(kKvBlockTokens);
constexpr int kLines = 64;
constexpr int64_t kMaxHeadDim = 512;
/// Lines in one register tile: kTile * kBlockVecs accumulators beside the operands.
constexpr int kTile = kWidth == 16 ? 8 : kWidth == 8 ? 2 : 1;
constexpr int kBlockVecs = 2 * kBlock / kWidth;  ///< pairs of one line of K
constexpr int kPageVecs = kPage / kWidth;
/// With more lines than this, each page is widened once.
constexpr int64_t kWidenAbove = 2 * kTile;

/// The scratch of one call. Rows of q and folded are `width` floats apart, those of sums twice that.
struct Scratch {
  float keys[kPage * kMaxHeadDim];
  float values[kPage * kMaxHeadDim];
  float q[kLines * kMaxHeadDim];         ///< scaled
  float sums[kLines * 2 * kMaxHeadDim];  ///< weighted values of the chunk so far, in pairs
  float folded[kLines * kMaxHeadDim];    ///< of all chunks so far
  float weights[kTile * kPage];
  float max[kLines];
  float total[kLines];
  Partial all[kLines];
};
static_assert(sizeof(Scratch) <= kScratchBytes);

/// One page as the inner loops see it: where it is, what the next one is (to ask for it early), and head_dim.
template <class Element>
struct Page {
  const Element* k;
  const Element* v;
  const Element* next_k;
  const Element* next_v;
  int64_t head_dim, width;
};

constexpr int64_t kLineBytes = 64;
template <class Element>
REDLINE_INLINE void prefetch_elements(const Element* p, int64_t count) {
  for (int64_t byte = 0; byte < count * static_cast<int64_t>(sizeof(Element)); byte += kLineBytes)
    __builtin_prefetch(reinterpret_cast<const char*>(p) + byte);
}

/// weights[r][i] = q[r] . k[i] for the whole page.
template <int rows, class Element>
REDLINE_INLINE void scores(const float* const* q, const Page<Element>& page, float* weights) {
  const int64_t pairs = even(page.head_dim) / 2;
  for (int block = 0; block < kPage / kBlock; ++block) {
    const Element* k = page.k + block * pairs * 2 * kBlock;
    const Element* next = page.next_k + block * pairs * 2 * kBlock;
    VecF32 sum[rows][kBlockVecs];
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < kBlockVecs; ++j) sum[r][j] = zero_f32();
    for (int64_t p = 0; p < pairs; ++p) {
      prefetch_elements(next + p * 2 * kBlock, 2 * kBlock);
      VecF32 keys[kBlockVecs];
      for (int j = 0; j < kBlockVecs; ++j) keys[j] = load(k + p * 2 * kBlock + j * kWidth, Full{});
      for (int r = 0; r < rows; ++r) {
        const VecF32 pair = set_pair(q[r] + 2 * p);
        for (int j = 0; j < kBlockVecs; ++j) sum[r][j] = fma(pair, keys[j], sum[r][j]);
      }
    }
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < kBlockVecs; j += 2)
        store(weights + r * kPage + block * kBlock + j / 2 * kWidth, add_pairs(sum[r][j], sum[r][j + 1]), Full{});
  }
}

/// Scores of one line into weights exp(score - max); what it gathered so far is rescaled when the maximum grows.
/// The line sees [begin, end) of the page. False: every score was -inf, nothing to add.
REDLINE_INLINE bool soften(float* weights, int begin, int end, float& max_so_far, float& total, float* sums,
                           int64_t floats) {
  for (int i = 0; i < begin; ++i) weights[i] = -__builtin_inff();
  for (int i = end; i < kPage; ++i) weights[i] = -__builtin_inff();
  VecF32 high = load(weights, Full{});
  for (int j = 1; j < kPageVecs; ++j) high = max(high, load(weights + j * kWidth, Full{}));
  const float page_max = reduce_max(high);
  if (page_max == -__builtin_inff()) {
    // max() may have dropped a NaN; it must still reach the result.
    for (int i = begin; i < end; ++i) total = weights[i] != weights[i] ? weights[i] : total;
    return false;
  }
  if (!(page_max <= max_so_far)) {
    const float shrink = exp_f32(max_so_far - page_max);
    total *= shrink;
    for (int64_t d = 0; d < floats; d += kWidth) store(sums + d, load(sums + d, Full{}) * set1(shrink), Full{});
    max_so_far = page_max;
  }
  VecF32 sum = zero_f32();
  for (int j = 0; j < kPageVecs; ++j) {
    const VecF32 w = exp(load(weights + j * kWidth, Full{}) - set1(max_so_far));
    store(weights + j * kWidth, w, Full{});
    sum = sum + w;
  }
  total += reduce_add(sum);
  return true;
}

/// sums[r] += weights[r][i] * v[i] for i in [begin, end), `vecs` vectors from place d of the row of pairs.
template <int rows, int vecs, class Element, class Lanes>
REDLINE_INLINE void add_values_at(float* const* sums, int begin, int end, int64_t d, Lanes lanes,
                                  const Page<Element>& page, const float* weights) {
  VecF32 sum[rows][vecs];
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < vecs; ++j) sum[r][j] = load(sums[r] + d + j * kWidth, Full{});
  const auto add = [&](int pair, auto&& seen) {
    VecF32 values[vecs];
    const int64_t at = pair * 2 * even(page.head_dim) + d;
    prefetch_elements(page.next_v + at, vecs * kWidth);
    for (int j = 0; j < vecs; ++j) values[j] = seen(load(page.v + at + j * kWidth, lanes));
    for (int r = 0; r < rows; ++r) {
      const VecF32 weight = set_pair(weights + r * kPage + 2 * pair);
      for (int j = 0; j < vecs; ++j) sum[r][j] = fma(weight, values[j], sum[r][j]);
    }
  };
  // A pair of which the line sees one: the other may hold anything, so its lanes are cleared.
  const auto add_one = [&](int pair, int which) {
    int32_t bits[2] = {which == 0 ? -1 : 0, which == 1 ? -1 : 0};
    float keep[2];
    __builtin_memcpy(keep, bits, sizeof(keep));
    const VecI32 mask = bits_i32(set_pair(keep));
    add(pair, [&](VecF32 v) { return bits_f32(bits_i32(v) & mask); });
  };
  if (begin % 2 != 0) add_one(begin / 2, 1);
  for (int pair = (begin + 1) / 2; pair < end / 2; ++pair) add(pair, [](VecF32 v) { return v; });
  if (end % 2 != 0) add_one(end / 2, 0);
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < vecs; ++j) store(sums[r] + d + j * kWidth, sum[r][j], Full{});
}
template <int rows, class Element>
REDLINE_INLINE void add_values(float* const* sums, int begin, int end, const Page<Element>& page,
                               const float* weights) {
  if (begin >= end) return;
  constexpr int vecs = rows > 4 ? 2 : 4;
  const int64_t floats = 2 * page.head_dim;
  int64_t d = 0;
  for (; d + vecs * kWidth <= floats; d += vecs * kWidth)
    add_values_at<rows, vecs>(sums, begin, end, d, Full{}, page, weights);
  for (; d + kWidth <= floats; d += kWidth) add_values_at<rows, 1>(sums, begin, end, d, Full{}, page, weights);
  if (d < floats) add_values_at<rows, 1>(sums, begin, end, d, Tail{static_cast<int>(floats - d)}, page, weights);
}

/// One page, whose first position is `position`, for `rows` lines, `line[r]` counted from `first`.
template <int rows, class Element>
void tile_step(const AttentionArgs& a, int64_t first, const int* line, int64_t position, const Page<Element>& page,
               Scratch& t) {
  const float* q[rows];
  for (int r = 0; r < rows; ++r) q[r] = t.q + line[r] * page.width;
  scores<rows>(q, page, t.weights);
  float* sums[rows];
  int begin[rows], end[rows];
  bool together = true;
  for (int r = 0; r < rows; ++r) {
    const Span span = visible(a, first + line[r]);
    sums[r] = t.sums + line[r] * 2 * page.width;
    begin[r] = static_cast<int>(max_i64(0, span.begin - position));
    end[r] = static_cast<int>(min_i64(kPage, span.end - position));
    float* weights = t.weights + r * kPage;
    if (!soften(weights, begin[r], end[r], t.max[line[r]], t.total[line[r]], sums[r], 2 * page.head_dim)) end[r] = 0;
    together = together && begin[r] == begin[0] && end[r] == end[0];
  }
  if (together) {
    add_values<rows>(sums, begin[0], end[0], page, t.weights);
  } else {
    for (int r = 0; r < rows; ++r) add_values<1>(sums + r, begin[r], end[r], page, t.weights + r * kPage);
  }
}
/// The same for a count known only at run time, 1 .. rows.
template <int rows, class Element>
void step(const AttentionArgs& a, int64_t first, const int* line, int count, int64_t position,
          const Page<Element>& page, Scratch& t) {
  if (count == rows) return tile_step<rows>(a, first, line, position, page, t);
  if constexpr (rows > 1) step<rows - 1>(a, first, line, count, position, page, t);
}

/// All lines over one page.
template <class Element>
void page_step(const AttentionArgs& a, int64_t first, int lines, int64_t position, Page<Element> page, Scratch& t) {
  int waiting[kTile], count = 0;
  for (int l = 0; l < lines; ++l) {
    const Span seen = visible(a, first + l);
    if (seen.end <= position || seen.begin >= position + kPage) continue;
    waiting[count++] = l;
    if (count < kTile) continue;
    step<kTile>(a, first, waiting, count, position, page, t);
    page.next_k = page.k, page.next_v = page.v;  // asked for
    count = 0;
  }
  if (count > 0) step<kTile>(a, first, waiting, count, position, page, t);
}

template <class Element>
REDLINE_INLINE void widen(const Element* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += kWidth) store(to + i, load(from + i, Full{}), Full{});
}

/// The lines' partials of one chunk into t.sums, t.max, t.total.
template <class Element>
void chunk_step(const AttentionArgs& a, int64_t first, int lines, Span span, int64_t width, Scratch& t) {
  for (int l = 0; l < lines; ++l) {
    t.max[l] = -__builtin_inff();
    t.total[l] = 0.0f;
    for (int64_t d = 0; d < 2 * width; d += kWidth) store(t.sums + l * 2 * width + d, zero_f32(), Full{});
  }
  const int64_t elements = kPage * even(a.head_dim);
  const bool many = sizeof(Element) < sizeof(float) && lines > kWidenAbove;
  for (int64_t position = span.begin / kPage * kPage; position < span.end; position += kPage) {
    const int64_t page = a.pages[position / kPage] * a.cache.page_stride;
    const int64_t next = position + kPage < span.end ? a.pages[position / kPage + 1] * a.cache.page_stride : page;
    const auto* k = static_cast<const Element*>(a.cache.k);
    const auto* v = static_cast<const Element*>(a.cache.v);
    if (many) {
      widen(k + page, elements, t.keys);
      widen(v + page, elements, t.values);
      page_step<float>(a, first, lines, position, {t.keys, t.values, t.keys, t.values, a.head_dim, width}, t);
    } else {
      page_step<Element>(a, first, lines, position, {k + page, v + page, k + next, v + next, a.head_dim, width}, t);
    }
  }
}

template <class Element>
void attention(const AttentionArgs& a) {
  Scratch& t = *static_cast<Scratch*>(a.scratch);
  const int64_t width = (a.head_dim + 15) / 16 * 16;
  const int64_t num_lines = a.rows * a.group, partial_floats = attention_partial_floats(a.head_dim);
  for (int64_t first = 0; first < num_lines; first += kLines) {
    const int lines = static_cast<int>(min_i64(kLines, num_lines - first));
    // Rows are in order of position, so the first line sees the earliest one and the last the latest.
    const Span span = {max_i64(a.kv_begin, visible(a, first).begin),
                       min_i64(a.kv_end, visible(a, first + lines - 1).end)};
    for (int l = 0; l < lines; ++l) {
      const float* q = a.q + (first + l) / a.group * a.q_stride + (first + l) % a.group * a.head_dim;
      if (a.head_dim % 2 != 0) t.q[l * width + a.head_dim] = 0.0f;
      for_lanes(a.head_dim,
                [&](int64_t d, auto lanes) { store(t.q + l * width + d, load(q + d, lanes) * set1(a.scale), lanes); });
      t.all[l].sums = t.folded + l * width;
      if (a.partials == nullptr) clear(t.all[l], a.head_dim);
    }
    const int64_t begin = a.partials != nullptr ? a.kv_begin : span.begin / kKvChunk * kKvChunk;
    const int64_t end = a.partials != nullptr ? a.kv_end : span.end;
    for (int64_t chunk = begin; chunk < end; chunk += kKvChunk) {
      chunk_step<Element>(a, first, lines, {max_i64(span.begin, chunk), min_i64(span.end, chunk + kKvChunk)}, width, t);
      for (int l = 0; l < lines; ++l) {
        float* sums = t.sums + l * 2 * width;  // pairs become sums in place: writing stays behind reading
        for (int64_t d = 0; d < a.head_dim; d += kWidth)
          store(sums + d, add_pairs(load(sums + 2 * d, Full{}), load(sums + 2 * d + kWidth, Full{})), Full{});
        const Partial part = {sums, t.max[l], t.total[l]};
        if (a.partials == nullptr) {
          fold(t.all[l], part, a.head_dim);
          continue;
        }
        Partial out = {a.partials + ((chunk - begin) / kKvChunk * num_lines + first + l) * partial_floats, part.max,
                       part.total};
        for (int64_t d = 0; d < a.head_dim; d += kWidth) store(out.sums + d, load(sums + d, Full{}), Full{});
        store_tail(out, a.head_dim);
      }
    }
    for (int l = 0; l < lines && a.partials == nullptr; ++l) {
      const int64_t line = first + l;
      write_line(t.all[l], a.head_dim, a.y + line / a.group * a.y_stride + line % a.group * a.head_dim);
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
