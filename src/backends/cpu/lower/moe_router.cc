#include "graph/ops/moe_router.h"

#include <algorithm>

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct MoeRouterParams {
  RouterAttrs a;
  Dim tokens = 1;
  const float* bias = nullptr;
  void (*exp)(const ExpArgs&) = nullptr;
  Operand<const float> logits;
  Operand<float> weights;
  Operand<int32_t> chosen;  // [tokens, experts_per_token]
};

struct GroupParams {
  RouterAttrs a;
  Dim tokens = 1;
  Operand<const int32_t> chosen;
  Operand<int32_t> offsets, order;
};

/// Computes the scores of one token.
void score(const MoeRouterParams& p, const float* logits, float* scores) {
  const int64_t n = p.a.num_experts;
  if (p.a.score == RouterScore::kSigmoid) {
    for (int64_t e = 0; e < n; ++e) scores[e] = -logits[e];
    p.exp({scores, scores, n});
    for (int64_t e = 0; e < n; ++e) scores[e] = 1 / (1 + scores[e]);
    return;
  }
  const float top = *std::max_element(logits, logits + n);
  for (int64_t e = 0; e < n; ++e) scores[e] = logits[e] - top;
  p.exp({scores, scores, n});
  float sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += scores[e];
  for (int64_t e = 0; e < n; ++e) scores[e] /= sum;
}

void run_choose(const MoeRouterParams& p, const Tile& tile, const StepContext&, WorkerContext& worker) {
  auto* scores = static_cast<float*>(worker.buffer);
  float* keys = scores + p.a.num_experts;
  for (int64_t t = tile.row_begin; t < tile.row_end; ++t) {
    score(p, p.logits + t * p.a.num_experts, scores);
    choose_experts(p.a, scores, p.bias, keys, p.chosen + t * p.a.experts_per_token,
                   p.weights + t * p.a.experts_per_token);
  }
}

void run_group(const GroupParams& p, const Tile&, const StepContext& step, WorkerContext& worker) {
  const int64_t experts = p.a.num_experts, pairs = p.tokens.eval(step.sizes) * p.a.experts_per_token;
  auto* next = static_cast<int32_t*>(worker.buffer);  // place of the expert's next pair
  std::fill_n(next, experts, 0);
  for (int64_t i = 0; i < pairs; ++i) ++next[p.chosen[i]];
  int32_t begin = 0;
  for (int64_t e = 0; e < experts; ++e) {
    p.offsets[e] = begin;
    begin += next[e];
    next[e] = p.offsets[e];
  }
  p.offsets[experts] = begin;
  for (int64_t i = 0; i < pairs; ++i) p.order[next[p.chosen[i]]++] = static_cast<int32_t>(i);
}

Status lower_moe_router(LowerContext& c) {
  const auto& a = std::any_cast<const RouterAttrs&>(c.op().attrs);
  const auto& outputs = c.op().outputs;
  const ValueId chosen = c.add_temporary(c.op().name + ".chosen", c.out().shape);  // as int32
  auto params = std::make_shared<MoeRouterParams>();
  params->a = a;
  params->tokens = c.out().shape[0];
  params->exp = c.kernels().exp;
  if (c.op().inputs.size() > 1) {
    REDLINE_ASSIGN(params->bias, c.dense_weight(1));
  }
  LoweredStage choose = c.output_stage<run_choose>(params);
  choose.grid.row_parts = c.workers();
  choose.buffer_bytes = (2 * a.num_experts + a.num_groups) * int64_t{sizeof(float)};
  choose.read(params->logits, c.op().inputs[0], Reads::kRows);
  choose.write(params->weights, outputs[0]);
  choose.write(params->chosen, chosen);
  c.add_stage(std::move(choose));

  auto grouping = std::make_shared<GroupParams>();
  grouping->a = a;
  grouping->tokens = params->tokens;
  auto group = LoweredStage::make<run_group>(TaskGrid::work_partitions(1, 1), grouping);
  group.name = c.op().name + ".group";
  group.buffer_bytes = a.num_experts * int64_t{sizeof(int32_t)};
  group.read(grouping->chosen, chosen, Reads::kAll);
  group.write(grouping->offsets, outputs[1]);
  group.write(grouping->order, outputs[2]);
  c.add_stage(std::move(group));
  return {};
}

constexpr CpuLowering kMoeRouterOps[] = {{&kMoeRouter, lower_moe_router}};

}  // namespace

extern const CpuLowerings kMoeRouterLowerings = kMoeRouterOps;

}  // namespace redline
