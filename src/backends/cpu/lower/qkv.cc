#include "graph/ops/qkv.h"

#include <algorithm>

#include "backends/cpu/linear_adapters.h"
#include "backends/cpu/linear_lowering.h"
#include "backends/cpu/lowering.h"
#include "graph/ops/kv_append.h"
#include "graph/ops/linear.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/rope.h"

namespace redline {
namespace {

struct QkvParams {
  QkvAttrs a;
  KvPlace cache;
  LinearKernels products[3];
  const void* weight[3];
  const float* bias[3];  // or nullptr, as the norms
  const float *q_norm, *k_norm;
  void (*rms_norm)(const RmsNormArgs&);
  void (*rope)(const RopeArgs&);
  void (*append)(const KvAppendArgs&);
  int64_t in_features, rotary_dim;
  int64_t col_bytes[3];  // of the packed weights
  Operand<const void> x;
  Operand<const float> table;
  Operand<float> q;
  LinearAdapters adapters;
};

// Maximum bytes that a task keeps between kernels, so that they stay in the L2 cache.
constexpr int64_t kQkvBlockBytes = 512 << 10;

// Returns the number of heads in a block, in which keys precede values.
int64_t block_heads(int64_t rows, int64_t head_dim, int64_t parts) {
  return std::max<int64_t>(1,
                           kQkvBlockBytes / (std::max<int64_t>(rows, 1) * head_dim * int64_t{sizeof(float)} * parts));
}

struct QkvBlock {
  const QkvParams& s;
  const Tile& tile;
  int64_t rows;
  const StepContext& step;
  WorkerContext& worker;

  // Projects heads [begin, end) of q, k or v (i) into y, rows `width` apart.
  void product(size_t i, int64_t begin, int64_t end, float* y, int64_t width) const {
    const int64_t d = s.a.head_dim, heads = i == 0 ? s.a.num_heads : s.a.num_kv_heads;
    // Kernels index columns from the first of the matrix.
    const LinearArgs args = {.x = s.x,
                             .x_stride = s.in_features,
                             .rows = rows,
                             .weight = s.weight[i],
                             .out_features = heads * d,
                             .in_features = s.in_features,
                             .n_begin = begin * d,
                             .n_end = end * d,
                             .bias = s.bias[i],
                             .residual = nullptr,
                             .y = y - begin * d,
                             .y_stride = width,
                             .scratch = worker.scratch};
    s.adapters.multiply(s.products[i].for_rows(rows), args, step, i, 0, worker);
  }
  // Head norm, if any, then rope; `to` may be x.
  void finish(float* x, int64_t width, const float* norm, float eps, float* to, int64_t to_stride) const {
    const int64_t d = s.a.head_dim, heads = width / d;
    if (norm) s.rms_norm({.x = x, .weight = norm, .y = x, .rows = rows * heads, .cols = d, .eps = eps});
    for (int64_t t = 0; t < rows; ++t) {
      const float* table = s.table + t * s.rotary_dim;
      s.rope({.x = x + t * width,
              .y = to + t * to_stride,
              .cosine = table,
              .sine = table + s.rotary_dim / 2,
              .rows = 1,
              .heads = heads,
              .head_dim = d,
              .rotary_dim = s.rotary_dim});
    }
  }
};

// The columns are the heads of q, then pairs of one head of k and the same head of v. A tile covers some of them for
// all rows.
void run_qkv(const QkvParams& s, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const QkvAttrs& a = s.a;
  const StateStep& state = step.states[s.cache.group];
  const QkvBlock b{s, tile, tile.row_end, step, worker};
  const int64_t d = a.head_dim, q_cols = a.num_heads * d;
  auto* buffer = static_cast<float*>(worker.buffer);

  const int64_t q_end = std::min(tile.col_end, q_cols) / d, q_block = block_heads(b.rows, d, 1);
  for (int64_t head = tile.col_begin / d; head < q_end; head += q_block) {
    const int64_t end = std::min(head + q_block, q_end), width = (end - head) * d;
    b.product(0, head, end, buffer, width);
    b.finish(buffer, width, s.q_norm, a.q_norm_eps, s.q + head * d, q_cols);
  }
  const int64_t kv_begin = (std::max(tile.col_begin, q_cols) - q_cols) / (2 * d),
                kv_end = (tile.col_end - q_cols) / (2 * d);
  const int64_t kv_block = block_heads(b.rows, d, 2);
  for (int64_t head = kv_begin; head < kv_end; head += kv_block) {
    const int64_t end = std::min(head + kv_block, kv_end), width = (end - head) * d;
    float* values = buffer + b.rows * width;
    b.product(1, head, end, buffer, width);
    b.product(2, head, end, values, width);
    b.finish(buffer, width, s.k_norm, a.k_norm_eps, buffer, width);
    for (int64_t h = head; h < end; ++h)
      s.append({.k = buffer + (h - head) * d,
                .v = values + (h - head) * d,
                .row_stride = width,
                .slots = state.slots,
                .rows = b.rows,
                .head_dim = d,
                .cache = kv_head(s.cache, state, h)});
  }
}

FirstBytes qkv_first_weights(const QkvParams& s, const Tile& tile) {
  const int64_t q_cols = s.a.num_heads * s.a.head_dim;
  auto part = [&](size_t i, int64_t begin, int64_t end, FirstBytes& first) {
    first.data[i % 2] = static_cast<const uint8_t*>(s.weight[i]) + s.col_bytes[i] * begin;
    first.bytes[i % 2] = s.col_bytes[i] * (end - begin);
  };
  FirstBytes first;
  if (tile.col_begin < q_cols) {
    part(0, tile.col_begin, std::min(tile.col_end, q_cols), first);
  } else {
    const int64_t begin = (tile.col_begin - q_cols) / 2, end = (tile.col_end - q_cols) / 2;
    part(1, begin, end, first);
    part(2, begin, end, first);
  }
  return first;
}

// Returns the columns at which to split: nearly equal parts that begin at a head of q or at a pair of k and v.
std::vector<int64_t> cut_heads(const QkvAttrs& a, int tiles) {
  const int64_t d = a.head_dim, q_cols = a.num_heads * d, cols = q_cols + 2 * a.num_kv_heads * d;
  std::vector<int64_t> begin = {0};
  for (int i = 1; i < tiles; ++i) {
    const int64_t at = cols * i / tiles;
    const int64_t cut = at < q_cols ? at / d * d : q_cols + (at - q_cols) / (2 * d) * (2 * d);
    if (cut > begin.back()) begin.push_back(cut);
  }
  begin.push_back(cols);
  return begin;
}

Status lower_qkv(LowerContext& c) {
  const auto& a = std::any_cast<const QkvAttrs&>(c.op().attrs);
  const QkvInputs in(a);
  auto params = std::make_shared<QkvParams>();
  params->a = a;
  params->in_features = c.in(1).shape[1].constant();
  params->rotary_dim = c.in(in.table).shape[1].constant();
  params->rms_norm = c.kernels().rms_norm;
  params->rope = c.kernels().rope;
  params->cache = c.kv_state(in.cache);
  params->append = c.kernels().kv_append[static_cast<size_t>(c.in(in.cache).state.format)];
  if (!params->append) return unsupported("no kernel writes this cache format");
  int64_t bytes = 0;
  for (size_t i = 0; i < 3; ++i) {
    REDLINE_ASSIGN(params->products[i], linear_kernels(c, 1 + i));
    params->col_bytes[i] = packed_col_bytes(c.in(1 + i));
    REDLINE_ASSIGN(params->weight[i], c.packed_weight(1 + i));
    bytes += row_bytes(c.in(1 + i).dtype, params->in_features) * c.in(1 + i).shape[0].constant();
    if (in.bias) {
      REDLINE_ASSIGN(params->bias[i], c.dense_weight(in.bias + i));
    }
  }
  if (in.q_norm) {
    REDLINE_ASSIGN(params->q_norm, c.dense_weight(in.q_norm));
  }
  if (in.k_norm) {
    REDLINE_ASSIGN(params->k_norm, c.dense_weight(in.k_norm));
  }
  const auto& ids = c.op().inputs;
  const int64_t cols = (a.num_heads + 2 * a.num_kv_heads) * a.head_dim;
  auto stage = LoweredStage::make<run_qkv, qkv_first_weights>(TaskGrid::of(c.in(0).shape[0], cols), params);
  stage.grid.col_begin = cut_heads(a, linear_tiles(c, cols, bytes));
  const int64_t rows = stage.grid.rows.eval(c.options().bounds);
  stage.buffer_bytes = std::max(kQkvBlockBytes, rows * a.head_dim * 2 * int64_t{sizeof(float)});
  stage.read(params->x, ids[0], Reads::kAll);
  stage.read(params->table, ids[in.table], Reads::kRows);
  stage.write(params->q, c.op().outputs[0]);
  stage.write(c.op().outputs[1]);
  REDLINE_TRY(params->adapters.lower(c, {{a.adapters[0]}, {a.adapters[1]}, {a.adapters[2]}},
                                     params->products[0].layouts, stage));
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kQkvOps[] = {{&kQkv, lower_qkv}};

}  // namespace

extern const CpuLowerings kQkvLowerings = kQkvOps;

}  // namespace redline
