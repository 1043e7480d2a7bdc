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

struct Attrs {
  QkvAttrs a;
  KvPlace cache;
  LinearKernels products[3];
  void (*rms_norm)(const RmsNormArgs&);
  void (*rope)(const RopeArgs&);
  void (*append)(const KvAppendArgs&);
  int64_t in_features, rotary_dim;
  int64_t col_bytes[3];  // of the packed weights
  LinearAdapters adapters;
};

// Data that a task keeps between kernels stays in the L2 cache.
constexpr int64_t kBlockBytes = 512 << 10;

// Number of heads in a block; keys precede values in it.
int64_t block_heads(int64_t rows, int64_t head_dim, int64_t parts) {
  return std::max<int64_t>(1, kBlockBytes / (std::max<int64_t>(rows, 1) * head_dim * int64_t{sizeof(float)} * parts));
}

enum Operand : size_t { kX, kWeight, kBias = kWeight + 3, kQNorm = kBias + 3, kKNorm, kTable, kQ, kAdapters };

struct Block {
  const CpuStage& stage;
  const Attrs& s;
  int64_t rows;
  const StepContext& step;
  WorkerContext& worker;

  // Projects heads [begin, end) of q, k or v (i) into y, rows `width` apart.
  void product(size_t i, int64_t begin, int64_t end, float* y, int64_t width) const {
    const int64_t d = s.a.head_dim, heads = i == 0 ? s.a.num_heads : s.a.num_kv_heads;
    // Kernels index columns from the first of the matrix.
    const LinearArgs args = {
        stage.operands[kX], s.in_features, rows,          stage.operands[kWeight + i],     heads * d,
        s.in_features,      begin * d,     end * d,       stage.operand<float>(kBias + i), nullptr,
        y - begin * d,      width,         worker.scratch};
    s.products[i].for_rows(rows)(args);
    s.adapters.add(step, i, args, 0, stage.operand<float>(kAdapters), worker.buffer);
  }
  // Head norm, if any, then rope; `to` may be x.
  void finish(float* x, int64_t width, const float* norm, float eps, float* to, int64_t to_stride) const {
    const int64_t d = s.a.head_dim, heads = width / d;
    if (norm) s.rms_norm({x, norm, x, rows * heads, d, eps});
    for (int64_t t = 0; t < rows; ++t) {
      const float* table = stage.operand<float>(kTable) + t * s.rotary_dim;
      s.rope({x + t * width, to + t * to_stride, table, table + s.rotary_dim / 2, 1, heads, d, s.rotary_dim});
    }
  }
};

// The columns are the heads of q, then pairs of one head of k and the same head of v. A tile covers some of them for
// all rows.
void run(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& s = stage.attrs_as<Attrs>();
  const QkvAttrs& a = s.a;
  const StateStep& state = step.states[s.cache.group];
  const Block b{stage, s, tile.row_end, step, worker};
  const int64_t d = a.head_dim, q_cols = a.num_heads * d;
  auto* buffer = static_cast<float*>(worker.buffer);

  const int64_t q_end = std::min(tile.col_end, q_cols) / d, q_block = block_heads(b.rows, d, 1);
  for (int64_t head = tile.col_begin / d; head < q_end; head += q_block) {
    const int64_t end = std::min(head + q_block, q_end), width = (end - head) * d;
    b.product(0, head, end, buffer, width);
    b.finish(buffer, width, stage.operand<float>(kQNorm), a.q_norm_eps, stage.operand<float>(kQ) + head * d, q_cols);
  }
  const int64_t kv_begin = (std::max(tile.col_begin, q_cols) - q_cols) / (2 * d),
                kv_end = (tile.col_end - q_cols) / (2 * d);
  const int64_t kv_block = block_heads(b.rows, d, 2);
  for (int64_t head = kv_begin; head < kv_end; head += kv_block) {
    const int64_t end = std::min(head + kv_block, kv_end), width = (end - head) * d;
    float* values = buffer + b.rows * width;
    b.product(1, head, end, buffer, width);
    b.product(2, head, end, values, width);
    b.finish(buffer, width, stage.operand<float>(kKNorm), a.k_norm_eps, buffer, width);
    for (int64_t h = head; h < end; ++h)
      s.append(
          {buffer + (h - head) * d, values + (h - head) * d, width, state.slots, b.rows, d, s.cache.head(state, h)});
  }
}

FirstBytes first_weights(const CpuStage& stage, const Tile& tile) {
  const auto& s = stage.attrs_as<Attrs>();
  const int64_t q_cols = s.a.num_heads * s.a.head_dim;
  auto part = [&](size_t i, int64_t begin, int64_t end, FirstBytes& first) {
    first.data[i % 2] = static_cast<const uint8_t*>(stage.operands[kWeight + i]) + s.col_bytes[i] * begin;
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

// Splits into nearly equal parts between heads of q or pairs of k and v.
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

Status lower(LowerContext& c) {
  const auto& a = std::any_cast<const QkvAttrs&>(c.op().attrs);
  const QkvInputs in(a);
  auto attrs = std::make_shared<Attrs>();
  attrs->a = a;
  attrs->in_features = c.in(1).shape[1].constant();
  attrs->rotary_dim = c.in(in.table).shape[1].constant();
  attrs->rms_norm = c.kernels().rms_norm;
  attrs->rope = c.kernels().rope;
  attrs->cache = c.kv_state(in.cache);
  attrs->append = c.kernels().kv_append[static_cast<size_t>(c.in(in.cache).state.format)];
  if (!attrs->append) return unsupported("no kernel writes this cache format");
  void *weight[3], *bias[3] = {}, *q_norm = nullptr, *k_norm = nullptr;
  int64_t bytes = 0;
  for (size_t i = 0; i < 3; ++i) {
    REDLINE_ASSIGN(attrs->products[i], linear_kernels(c, 1 + i));
    attrs->col_bytes[i] = packed_col_bytes(c.in(1 + i));
    REDLINE_ASSIGN(weight[i], c.packed_weight(1 + i));
    bytes += row_bytes(c.in(1 + i).dtype, attrs->in_features) * c.in(1 + i).shape[0].constant();
    if (in.bias) {
      REDLINE_ASSIGN(bias[i], c.dense_weight(in.bias + i));
    }
  }
  if (in.q_norm) {
    REDLINE_ASSIGN(q_norm, c.dense_weight(in.q_norm));
  }
  if (in.k_norm) {
    REDLINE_ASSIGN(k_norm, c.dense_weight(in.k_norm));
  }
  const auto& ids = c.op().inputs;
  LoweredStage stage;
  stage.run = run;
  stage.first_weights = first_weights;
  stage.rows = c.in(0).shape[0];
  stage.col_begin = cut_heads(a, linear_tiles(c, (a.num_heads + 2 * a.num_kv_heads) * a.head_dim, bytes));
  stage.cols = stage.col_begin.back();
  const int64_t rows = stage.rows.eval(c.options().bounds);
  stage.buffer_bytes = std::max(kBlockBytes, rows * a.head_dim * 2 * int64_t{sizeof(float)});
  stage.reads = {{ids[0], Reads::kAll}, {ids[in.table], Reads::kRows}};
  stage.writes = c.op().outputs;
  REDLINE_ASSIGN(attrs->adapters, LinearAdapters::lower(c, {{a.adapters[0]}, {a.adapters[1]}, {a.adapters[2]}},
                                                        attrs->products[0].layouts, stage));
  stage.attrs = attrs;
  c.add_stage(std::move(stage), {c.at(ids[0]), c.at(weight[0]), c.at(weight[1]), c.at(weight[2]), c.at(bias[0]),
                                 c.at(bias[1]), c.at(bias[2]), c.at(q_norm), c.at(k_norm), c.at(ids[in.table]),
                                 c.at(c.op().outputs[0]), attrs->adapters.operand(c)});
  return {};
}

}  // namespace

extern const CpuLowering kQkvLowering = {&kQkv, lower};

}  // namespace redline
