#include "graph/ops/relative_bias_attention.h"

#include <algorithm>
#include <numeric>

#include "backends/cpu/lowering.h"
#include "graph/items.h"
#include "kernels/cpu/relative_bias_attention.h"

namespace redline {
namespace {

struct Attrs {
  RelativeBiasAttentionOpAttrs op;
  bool has_lengths;
  void (*kernel)(const RelativeBiasAttentionArgs&);
  int64_t most_tokens;      ///< per batch item
  std::vector<float> bias;  ///< [heads][distances from -(most_tokens - 1) to most_tokens - 1]
};

// operands: q, k, v, key_lengths or null, y. A tile covers some heads of some rows.
void run(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& s = stage.attrs_as<Attrs>();
  const auto& a = s.op.a;
  const int64_t stride = a.num_heads * a.head_dim, tokens = s.op.tokens.eval(step.sizes);
  for_items(tile.row_begin, tile.row_end, tokens, [&](int64_t item, int64_t begin, int64_t end) {
    const int64_t given = s.has_lengths ? stage.operand<int32_t>(3)[item] : tokens;
    for (int64_t col = tile.col_begin; col < tile.col_end; col += a.head_dim) {
      const int64_t row = begin * stride + col, keys = item * tokens * stride + col, head = col / a.head_dim;
      const float* bias = s.bias.data() + head * (2 * s.most_tokens - 1) + s.most_tokens - 1;
      s.kernel({stage.operand<float>(0) + row, stride, stage.operand<float>(1) + keys, stage.operand<float>(2) + keys,
                stride, stage.operand<float>(4) + row, stride, end - begin, begin - item * tokens,
                std::clamp<int64_t>(given, 0, tokens), a.head_dim, a.scale, bias, worker.scratch});
    }
  });
}

Status lower(LowerContext& c) {
  const auto& op = std::any_cast<const RelativeBiasAttentionOpAttrs&>(c.op().attrs);
  const auto& a = op.a;
  const auto& in = c.op().inputs;
  if (!c.kernels().relative_bias_attention) return unsupported("no kernel for attention with a bias by distance");
  REDLINE_ASSIGN(const void* weight, c.dense_weight(3));
  const auto* table = static_cast<const float*>(weight);
  Attrs s{op,
          in.size() > 4,
          c.kernels().relative_bias_attention,
          std::max<int64_t>(1, op.tokens.eval(c.options().bounds)),
          {}};
  for (int64_t h = 0; h < a.num_heads; ++h)
    for (int64_t distance = 1 - s.most_tokens; distance < s.most_tokens; ++distance)
      s.bias.push_back(table[relative_bucket(distance, a.num_buckets, a.max_distance) * a.num_heads + h]);

  LoweredStage stage = c.output_stage(run);
  // Split by heads first, because different heads share no keys.
  const int64_t cols = std::gcd(a.num_heads, static_cast<int64_t>(c.workers()));
  stage.col_begin = LowerContext::cut_columns(stage.cols, a.head_dim, static_cast<int>(cols));
  stage.row_tiles = c.workers() / static_cast<int>(cols);
  stage.reads = {{in[0], Reads::kTile}, {in[1], Reads::kAll}, {in[2], Reads::kAll}};
  std::vector<LowerContext::Operand> operands = {c.at(in[0]), c.at(in[1]), c.at(in[2]), c.at(nullptr)};
  if (s.has_lengths) {
    stage.reads.push_back({in[4], Reads::kAll});
    operands[3] = c.at(in[4]);
  }
  operands.push_back(c.at(c.op().outputs[0]));
  stage.attrs = std::make_shared<Attrs>(std::move(s));
  c.add_stage(std::move(stage), operands);
  return {};
}

}  // namespace

extern const CpuLowering kRelativeBiasAttentionLowering = {&kRelativeBiasAttention, lower};

}  // namespace redline
