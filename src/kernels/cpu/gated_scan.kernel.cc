// One chunk of a scan with a decay per head and token (recurrence.h). With G[t] the sum of log_decay up to token t of
// the chunk and S the state before it,
//   y[t] = e^G[t] S^T q[t] + sum_{s <= t} e^(G[t] - G[s]) (q[t] . k[s]) u[s]
//   kDelta: u[t] = scale[t] (v[t] - e^G[t] S^T k[t] - sum_{s < t} e^(G[t] - G[s]) (k[t] . k[s]) u[s])
// and after the last token S becomes e^G S + sum_s e^(G - G[s]) k[s] u[s]^T. The products with S and between keys are
// small matrix products; what is sequential, u of kDelta, is one short sum per token.
//
// Every sum runs in one order, over key_dim or over tokens, so bits depend neither on the rows of a call nor on the
// heads. G is kept in float64: it may be large where a token forgets everything, and differences of later tokens stay
// exact. Error, with e = 2^-24: a product with S is off by key_dim e |q||S|, a sum over tokens by (chunk + key_dim + 4)
// e sum |(q . k) u|. One chunk multiplies the error of S by its decay and adds (chunk + 4) e sum |k||u|, so errors do
// not grow beyond those of the tokens that still contribute to the state.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/recurrence.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int64_t C = kScanChunk;
constexpr int kRows = 4;
constexpr int kVecs = kWidth == 16 ? 4 : 2;
static_assert(C % kWidth == 0);

struct Scratch {
  float keys[kMaxScanKeyDim * C];     ///< [key_dim][C]
  float queries[C * kMaxScanKeyDim];  ///< [rows][key_dim]
  float scores[C * C];                ///< q[t] . k[s] of rows t
  float key_scores[C * C];            ///< k[t] . k[s]
  float weights[C];                   ///< weights of the tokens in one sum
  float update[kMaxScanKeyDim * C];   ///< keys times what is left of them at the end of the chunk
  float from_state[C * kMaxScanValueDim];
  double decay[C];  ///< G
};
static_assert(sizeof(Scratch) <= kScratchBytes);

/// out[r][c] = factor init[r][c] + sum_d x[r, d] matrix[d][c], in order of d. x[r, d] is at x + r * x_row + d *
/// x_depth.
struct Product {
  const float* x;
  int64_t x_row, x_depth, depth;
  const float* matrix;
  int64_t matrix_row;
  const float* init;  ///< nullptr: zeros
  int64_t init_row;
  float factor;
  float* out;
  int64_t out_row;
};

template <int rows, int vecs, class Lanes>
REDLINE_INLINE void product_tile(const Product& p, int64_t r, int64_t c, Lanes lanes) {
  VecF32 sum[rows][vecs];
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < vecs; ++j)
      sum[i][j] =
          p.init != nullptr ? load(p.init + (r + i) * p.init_row + c + j * kWidth, lanes) * set1(p.factor) : zero_f32();
  const float* x = p.x + r * p.x_row;
  const float* m = p.matrix + c;
  for (int64_t d = 0; d < p.depth; ++d) {
    VecF32 values[vecs];
    for (int j = 0; j < vecs; ++j) values[j] = load(m + d * p.matrix_row + j * kWidth, lanes);
    for (int i = 0; i < rows; ++i) {
      const VecF32 factor = set1(x[i * p.x_row + d * p.x_depth]);
      for (int j = 0; j < vecs; ++j) sum[i][j] = fma(factor, values[j], sum[i][j]);
    }
  }
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < vecs; ++j) store(p.out + (r + i) * p.out_row + c + j * kWidth, sum[i][j], lanes);
}

template <int rows>
REDLINE_INLINE void product_rows(const Product& p, int64_t r, int64_t cols) {
  int64_t c = 0;
  for (; c + kVecs * kWidth <= cols; c += kVecs * kWidth) product_tile<rows, kVecs>(p, r, c, Full{});
  for (; c + kWidth <= cols; c += kWidth) product_tile<rows, 1>(p, r, c, Full{});
  if (c < cols) product_tile<rows, 1>(p, r, c, Tail{static_cast<int>(cols - c)});
}

void multiply(const Product& p, int64_t rows, int64_t cols) {
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) product_rows<kRows>(p, r, cols);
  for (; r < rows; ++r) product_rows<1>(p, r, cols);
}

REDLINE_INLINE void copy(const float* from, float* to, int64_t count) {
  if (from == to) return;
  for_lanes(count, [&](int64_t i, auto lanes) { store(to + i, load(from + i, lanes), lanes); });
}

/// Returns 1 / sqrt(|x|^2 + 1e-6).
REDLINE_INLINE float inverse_length(const float* x, int64_t count) {
  VecF32 sum = zero_f32();
  for_lanes(count, [&](int64_t i, auto lanes) {
    const VecF32 value = load(x + i, lanes);
    sum = fma(value, value, sum);
  });
  return 1.0f / __builtin_sqrtf(reduce_add(sum) + 1e-6f);
}

/// Computes the values that the heads of a group share: keys and queries of the new rows, and their products.
void prepare_group(const GatedScanArgs& a, Scratch& s) {
  const bool is_delta = a.kind == GatedScanArgs::kDelta;
  if (a.filled > 0) copy(a.keys_before, s.keys, a.key_dim * C);
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* k = a.k + r * a.stride;
    const float* q = a.q + r * a.stride;
    const float key_scale = is_delta ? inverse_length(k, a.key_dim) : 1.0f;
    for (int64_t d = 0; d < a.key_dim; ++d) s.keys[d * C + a.filled + r] = k[d] * key_scale;
    const VecF32 query_scale = set1(is_delta ? inverse_length(q, a.key_dim) * a.query_scale : a.query_scale);
    for_lanes(a.key_dim, [&](int64_t d, auto lanes) {
      store(s.queries + r * a.key_dim + d, load(q + d, lanes) * query_scale, lanes);
    });
  }
  const int64_t known = a.filled + a.rows;
  Product scores = {s.queries, a.key_dim, 1, a.key_dim, s.keys, C, nullptr, 0, 1.0f, s.scores, C};
  multiply(scores, a.rows, known);
  if (!is_delta) return;
  scores.x = s.keys + a.filled;
  scores.x_row = 1;
  scores.x_depth = C;
  scores.out = s.key_scores;
  multiply(scores, a.rows, known);
}

/// weights[s] = sign e^(G[t] - G[s]) scores[s] for s in [0, count)
REDLINE_INLINE void weigh(const float* scores, int64_t t, int64_t count, float sign, Scratch& s) {
  for (int64_t i = 0; i < count; ++i) s.weights[i] = static_cast<float>(s.decay[t] - s.decay[i]);
  for_lanes(count, [&](int64_t i, auto lanes) {
    store(s.weights + i, exp(load(s.weights + i, lanes)) * load(scores + i, lanes) * set1(sign), lanes);
  });
}

/// out = factor init + sum_{i < count} weights[i] values[i]
REDLINE_INLINE void add_values(const float* init, float factor, const float* values, int64_t count, int64_t size,
                               float* out, const Scratch& s) {
  const Product sum = {s.weights, 0, 1, count, values, size, init, 0, factor, out, 0};
  product_rows<1>(sum, 0, size);
}

void run_head(const GatedScanArgs& a, int64_t h, Scratch& s) {
  const bool is_delta = a.kind == GatedScanArgs::kDelta;
  const int64_t size = a.value_dim, filled = a.filled, end = a.filled + a.rows;
  const float* state = a.state_before + h * a.key_dim * size;
  float* state_after = a.state_after + h * a.key_dim * size;
  float* values = a.values_after + h * C * size;
  float* decays = a.decays_after + h * C;
  copy(a.values_before + h * C * size, values, filled * size);
  copy(a.decays_before + h * C, decays, filled);
  for (int64_t r = 0; r < a.rows; ++r) decays[filled + r] = a.log_decay[h * C + r];
  double sum = 0;
  for (int64_t t = 0; t < end; ++t) s.decay[t] = sum += static_cast<double>(decays[t]);

  Product from_state = {s.keys + filled, 1, C, a.key_dim, state, size, nullptr, 0, 1.0f, s.from_state, size};
  if (is_delta) multiply(from_state, a.rows, size);
  for (int64_t r = 0; r < a.rows; ++r) {
    const int64_t t = filled + r;
    const float* v = a.v + r * a.stride + h * size;
    float* u = values + t * size;
    const VecF32 scale = set1(a.scale[h * C + r]);
    if (!is_delta) {
      for_lanes(size, [&](int64_t i, auto lanes) { store(u + i, load(v + i, lanes) * scale, lanes); });
      continue;
    }
    const VecF32 left = set1(-exp_f32(static_cast<float>(s.decay[t])));
    for_lanes(size, [&](int64_t i, auto lanes) {
      store(u + i, fma(left, load(s.from_state + r * size + i, lanes), load(v + i, lanes)), lanes);
    });
    weigh(s.key_scores + r * C, t, t, -1.0f, s);
    add_values(u, 1.0f, values, t, size, u, s);
    for_lanes(size, [&](int64_t i, auto lanes) { store(u + i, load(u + i, lanes) * scale, lanes); });
  }

  from_state.x = s.queries;
  from_state.x_row = a.key_dim;
  from_state.x_depth = 1;
  multiply(from_state, a.rows, size);
  for (int64_t r = 0; r < a.rows; ++r) {
    const int64_t t = filled + r;
    float* y = a.y + r * a.y_stride + h * size;
    weigh(s.scores + r * C, t, t + 1, 1.0f, s);
    add_values(s.from_state + r * size, exp_f32(static_cast<float>(s.decay[t])), values, t + 1, size, y, s);
    if (a.skip == nullptr) continue;
    const float* v = a.v + r * a.stride + h * size;
    const VecF32 skip = set1(a.skip[h]);
    for_lanes(size,
              [&](int64_t i, auto lanes) { store(y + i, fma(skip, load(v + i, lanes), load(y + i, lanes)), lanes); });
  }

  if (end < C) return copy(state, state_after, a.key_dim * size);
  for (int64_t i = 0; i < C; ++i) s.weights[i] = static_cast<float>(s.decay[C - 1] - s.decay[i]);
  for (int64_t i = 0; i < C; i += kWidth) store(s.weights + i, exp(load(s.weights + i, Full{})), Full{});
  for (int64_t d = 0; d < a.key_dim; ++d)
    for (int64_t i = 0; i < C; i += kWidth)
      store(s.update + d * C + i, load(s.keys + d * C + i, Full{}) * load(s.weights + i, Full{}), Full{});
  const float left = exp_f32(static_cast<float>(s.decay[C - 1]));
  multiply({s.update, C, 1, C, values, size, state, size, left, state_after, size}, a.key_dim, size);
}

void gated_scan(const GatedScanArgs& a) {
  Scratch& s = *static_cast<Scratch*>(a.scratch);
  prepare_group(a, s);
  for (int64_t h = 0; h < a.heads; ++h) run_head(a, h, s);
  if (a.filled + a.rows < C && a.keys_after != nullptr) copy(s.keys, a.keys_after, a.key_dim * C);
}

}  // namespace

void fill_gated_scan(CpuKernels& table) { table.gated_scan = gated_scan; }

}  // namespace redline::REDLINE_ISA_NS
