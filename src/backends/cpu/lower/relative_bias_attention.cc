#include "graph/ops/relative_bias_attention.h"

#include <algorithm>
#include <numeric>

#include "backends/cpu/lowering.h"
#include "graph/items.h"
#include "kernels/cpu/attention/relative_bias_attention.h"

namespace redline {
namespace {

struct RelativeBiasAttentionParams {
  RelativeBiasAttentionOpAttrs op;
  void (*kernel)(const RelativeBiasAttentionArgs&);
  int64_t max_tokens;       ///< per batch item
  std::vector<float> bias;  ///< [heads][distances from -(max_tokens - 1) to max_tokens - 1]
  Operand<const float> q, k, v;
  Operand<const int32_t> key_lengths;  ///< null if all keys are attended to
  Operand<float> y;
};

// A tile covers some heads of some rows.
void run_relative_bias_attention(const RelativeBiasAttentionParams& s, const Tile& tile, const StepContext& step,
                                 WorkerContext& worker) {
  const auto& a = s.op.a;
  const int64_t stride = a.num_heads * a.head_dim, tokens = s.op.tokens.eval(step.sizes);
  for_items(tile.row_begin, tile.row_end, tokens, [&](int64_t item, int64_t begin, int64_t end) {
    const int64_t given = s.key_lengths ? s.key_lengths[item] : tokens;
    for (int64_t col = tile.col_begin; col < tile.col_end; col += a.head_dim) {
      const int64_t row = begin * stride + col, keys = item * tokens * stride + col, head = col / a.head_dim;
      s.kernel({.q = s.q + row,
                .q_stride = stride,
                .k = s.k + keys,
                .v = s.v + keys,
                .kv_stride = stride,
                .y = s.y + row,
                .y_stride = stride,
                .rows = end - begin,
                .first_row = begin - item * tokens,
                .keys = std::clamp<int64_t>(given, 0, tokens),
                .head_dim = a.head_dim,
                .scale = a.scale,
                .bias = s.bias.data() + head * (2 * s.max_tokens - 1) + s.max_tokens - 1,
                .scratch = worker.scratch});
    }
  });
}

Status lower_relative_bias_attention(LowerContext& c) {
  const auto& op = std::any_cast<const RelativeBiasAttentionOpAttrs&>(c.op().attrs);
  const auto& a = op.a;
  const auto& in = c.op().inputs;
  if (!c.kernels().relative_bias_attention) return unsupported("no kernel for attention with a bias by distance");
  REDLINE_ASSIGN(const float* const table, c.dense_weight(3));
  auto params = std::make_shared<RelativeBiasAttentionParams>();
  params->op = op;
  params->kernel = c.kernels().relative_bias_attention;
  params->max_tokens = std::max<int64_t>(1, op.tokens.eval(c.options().bounds));
  for (int64_t h = 0; h < a.num_heads; ++h)
    for (int64_t distance = 1 - params->max_tokens; distance < params->max_tokens; ++distance)
      params->bias.push_back(table[relative_bucket(distance, a.num_buckets, a.max_distance) * a.num_heads + h]);

  LoweredStage stage = c.output_stage<run_relative_bias_attention>(params);
  // Split by heads first, because different heads share no keys.
  const int64_t cols = std::gcd(a.num_heads, static_cast<int64_t>(c.workers()));
  stage.grid.col_begin = LowerContext::cut_columns(stage.grid.cols, a.head_dim, static_cast<int>(cols));
  stage.grid.row_parts = c.workers() / static_cast<int>(cols);
  stage.read(params->q, in[0], Reads::kTile);
  stage.read(params->k, in[1], Reads::kAll);
  stage.read(params->v, in[2], Reads::kAll);
  if (in.size() > 4) stage.read(params->key_lengths, in[4], Reads::kAll);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kRelativeBiasAttentionOps[] = {{&kRelativeBiasAttention, lower_relative_bias_attention}};

}  // namespace

extern const CpuLowerings kRelativeBiasAttentionLowerings = kRelativeBiasAttentionOps;

}  // namespace redline
