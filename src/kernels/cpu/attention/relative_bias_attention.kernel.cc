// Softmax attention in float32 with a relative position bias, over dense rows of keys and values.
//
// Online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867) over chunks of positions. The keys of a chunk are
// transposed and its values copied once for many query rows: in a model the rows of one head are a multiple of 4 KiB
// apart, so only a few of them fit into the cache sets at a time. Up to kTile query rows share each load.
//
// Each sum has one order (scores over head_dim, values over positions), so the bits of a row do not depend on the other
// rows of the call. Error, with e = 2^-24: scores are off by at most (head_dim + 2) e scale |q| |k|, the weighted sum
// by (keys + 8) e max|v|. A NaN or +inf score makes its row NaN.
#include "kernels/cpu/attention/relative_bias_attention.h"

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int64_t kChunk = 128;
constexpr int64_t kMaxHeadDim = 512;
constexpr int64_t kLines = 512;  ///< query rows that share the copy of a chunk
constexpr int kTile = kWidth == 16 ? 6 : 4;
constexpr int kVecs = kWidth == 16 ? 4 : 2;
static_assert(kChunk % (kVecs * kWidth) == 0);

struct Scratch {
  float keys[kMaxHeadDim * kChunk];    ///< [head_dim][kChunk]
  float values[kChunk * kMaxHeadDim];  ///< [kChunk][head_dim]
  float weights[kTile * kChunk];
  float max[kLines];
  float total[kLines];
};
static_assert(sizeof(Scratch) <= kScratchBytes);

/// Transposes keys, zero-padded to a whole register tile of positions, and copies values densely.
REDLINE_INLINE void copy_chunk(const float* k, const float* v, int64_t stride, int64_t count, int64_t head_dim,
                               Scratch& s) {
  const int64_t padded = (count + kVecs * kWidth - 1) / (kVecs * kWidth) * (kVecs * kWidth);
  for (int64_t p = 0; p < padded; p += kWidth)
    for (int64_t d = 0; d < head_dim; d += kWidth) {
      VecF32 block[kWidth];
      const auto read = [&](auto lanes) {
        for (int i = 0; i < kWidth; ++i) block[i] = p + i < count ? load(k + (p + i) * stride + d, lanes) : zero_f32();
      };
      const int64_t left = min_i64(kWidth, head_dim - d);
      if (left == kWidth) read(Full{});
      else read(Tail{static_cast<int>(left)});
      transpose(block);
      for (int64_t i = 0; i < left; ++i) store(s.keys + (d + i) * kChunk + p, block[i], Full{});
    }
  for (int64_t p = 0; p < count; ++p)
    for_lanes(head_dim, [&](int64_t d, auto lanes) {
      store(s.values + p * head_dim + d, load(v + p * stride + d, lanes), lanes);
    });
}

/// weights[r][p] = q[r] . k[p] for the chunk.
template <int rows>
REDLINE_INLINE void products(const float* q, int64_t q_stride, int64_t count, int64_t head_dim, Scratch& s) {
  for (int64_t p = 0; p < count; p += kVecs * kWidth) {
    VecF32 sum[rows][kVecs];
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < kVecs; ++j) sum[r][j] = zero_f32();
    for (int64_t d = 0; d < head_dim; ++d) {
      VecF32 keys[kVecs];
      for (int j = 0; j < kVecs; ++j) keys[j] = load(s.keys + d * kChunk + p + j * kWidth, Full{});
      for (int r = 0; r < rows; ++r) {
        const VecF32 x = set1(q[r * q_stride + d]);
        for (int j = 0; j < kVecs; ++j) sum[r][j] = fma(x, keys[j], sum[r][j]);
      }
    }
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < kVecs; ++j) store(s.weights + r * kChunk + p + j * kWidth, sum[r][j], Full{});
  }
}

/// Turns the products of one row into weights exp(score - max). Returns the factor that rescales the previous sums.
REDLINE_INLINE float soften(float* weights, int64_t count, float scale, const float* bias, float& max_so_far,
                            float& total) {
  VecF32 high = set1(max_so_far);
  for_lanes(count, [&](int64_t p, auto lanes) {
    const VecF32 score = fma(load(weights + p, lanes), set1(scale), load(bias + p, lanes));
    store(weights + p, score, lanes);
  });
  for (int64_t p = count; p % kWidth != 0; ++p) weights[p] = -__builtin_inff();
  for (int64_t p = 0; p < count; p += kWidth) high = max(load(weights + p, Full{}), high);
  const float top = reduce_max(high);
  const float shrink = exp_f32(max_so_far - top);
  VecF32 sum = zero_f32();
  for (int64_t p = 0; p < count; p += kWidth) {
    const VecF32 w = exp(load(weights + p, Full{}) - set1(top));
    store(weights + p, w, Full{});
    sum = sum + w;
  }
  total = total * shrink + reduce_add(sum);
  max_so_far = top;
  return shrink;
}

/// y[r] = y[r] * shrink[r] + sum_p weights[r][p] v[p], `vecs` vectors from column d.
template <int rows, int vecs, class Lanes>
REDLINE_INLINE void add_values(float* y, int64_t y_stride, const float* shrink, bool first, int64_t count, int64_t d,
                               Lanes lanes, int64_t head_dim, const Scratch& s) {
  VecF32 sum[rows][vecs];
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < vecs; ++j)
      sum[r][j] = first ? zero_f32() : load(y + r * y_stride + d + j * kWidth, lanes) * set1(shrink[r]);
  for (int64_t p = 0; p < count; ++p) {
    VecF32 values[vecs];
    for (int j = 0; j < vecs; ++j) values[j] = load(s.values + p * head_dim + d + j * kWidth, lanes);
    for (int r = 0; r < rows; ++r) {
      const VecF32 w = set1(s.weights[r * kChunk + p]);
      for (int j = 0; j < vecs; ++j) sum[r][j] = fma(w, values[j], sum[r][j]);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < vecs; ++j) store(y + r * y_stride + d + j * kWidth, sum[r][j], lanes);
}

/// One register tile of query rows, at an offset in the call's block of rows, over the chunk from position `chunk`.
template <int rows>
void tile_step(const RelativeBiasAttentionArgs& a, int64_t block, int64_t line, int64_t chunk, int64_t count,
               Scratch& s) {
  const int64_t row = block + line;
  products<rows>(a.q + row * a.q_stride, a.q_stride, count, a.head_dim, s);
  float shrink[rows];
  for (int r = 0; r < rows; ++r)
    shrink[r] = soften(s.weights + r * kChunk, count, a.scale, a.bias + chunk - (a.first_row + row + r),
                       s.max[line + r], s.total[line + r]);
  float* y = a.y + row * a.y_stride;
  int64_t d = 0;
  for (; d + kVecs * kWidth <= a.head_dim; d += kVecs * kWidth)
    add_values<rows, kVecs>(y, a.y_stride, shrink, chunk == 0, count, d, Full{}, a.head_dim, s);
  for (; d + kWidth <= a.head_dim; d += kWidth)
    add_values<rows, 1>(y, a.y_stride, shrink, chunk == 0, count, d, Full{}, a.head_dim, s);
  if (d < a.head_dim)
    add_values<rows, 1>(y, a.y_stride, shrink, chunk == 0, count, d, Tail{static_cast<int>(a.head_dim - d)}, a.head_dim,
                        s);
}
/// Dispatches on a row count known only at run time, 1 .. rows.
template <int rows>
void step(int64_t these, const RelativeBiasAttentionArgs& a, int64_t block, int64_t line, int64_t chunk, int64_t count,
          Scratch& s) {
  if (these == rows) return tile_step<rows>(a, block, line, chunk, count, s);
  if constexpr (rows > 1) step<rows - 1>(these, a, block, line, chunk, count, s);
}

void relative_bias_attention(const RelativeBiasAttentionArgs& a) {
  Scratch& s = *static_cast<Scratch*>(a.scratch);
  for (int64_t block = 0; block < a.rows; block += kLines) {
    const int64_t lines = min_i64(kLines, a.rows - block);
    for (int64_t l = 0; l < lines; ++l) s.max[l] = -__builtin_inff(), s.total[l] = 0.0f;
    for (int64_t chunk = 0; chunk < a.keys; chunk += kChunk) {
      const int64_t count = min_i64(kChunk, a.keys - chunk);
      copy_chunk(a.k + chunk * a.kv_stride, a.v + chunk * a.kv_stride, a.kv_stride, count, a.head_dim, s);
      for (int64_t l = 0; l < lines; l += kTile) step<kTile>(min_i64(kTile, lines - l), a, block, l, chunk, count, s);
    }
    for (int64_t l = 0; l < lines; ++l) {
      float* y = a.y + (block + l) * a.y_stride;
      const VecF32 scale = set1(1.0f / s.total[l]);
      for_lanes(a.head_dim, [&](int64_t d, auto lanes) {
        store(y + d, a.keys > 0 ? load(y + d, lanes) * scale : zero_f32(), lanes);
      });
    }
  }
}

}  // namespace

void fill_relative_bias_attention(CpuKernels& table) { table.relative_bias_attention = relative_bias_attention; }

}  // namespace redline::REDLINE_ISA_NS
