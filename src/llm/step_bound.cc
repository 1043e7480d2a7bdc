#include "llm/step_bound.h"

#include <algorithm>
#include <cmath>

#include "tensor/kv_page.h"

namespace redline {

double position_bytes(const StateGroup& group) {
  return static_cast<double>(group.page_bytes) / static_cast<double>(kKvPageTokens);
}

void StepWork::add_attention(std::span<const StateGroup> groups, double tokens, double depth) {
  for (const StateGroup& group : groups) {
    if (group.kind == StateKind::kRecurrent) {
      kv_bytes += static_cast<double>(group.page_bytes);
      continue;
    }
    const auto window = static_cast<double>(group.window);
    // The first tokens attend to all positions before them, the others to a full window.
    const double growing = group.window > 0 ? std::clamp(window - depth, 0.0, tokens) : tokens;
    const double seen = growing * depth + growing * (growing + 1) / 2 + (tokens - growing) * window;
    const double read = group.window > 0 ? std::min(depth, window - 1) + tokens : depth + tokens;
    kv_bytes += read * position_bytes(group);
    pairs += seen * static_cast<double>(group.values.size());
  }
}

std::vector<EngineProfile::OpCost> op_costs(const TextModel& model, const StepWork& work, const char* kv_type) {
  const DecoderConfig& c = model.config;
  std::vector<EngineProfile::OpCost> costs;
  for (const TextModel::LinearCost& linear : model.linear_costs) {
    if (linear.is_output && work.logit_rows == 0) continue;
    const bool has_experts = linear.expert_share < 1;
    // Only the experts of some token are read; each is chosen with the same probability.
    const double read = has_experts ? 1 - std::pow(1 - linear.expert_share, work.tokens) : 1;
    costs.push_back({linear.is_output ? "output"
                     : has_experts    ? "experts"
                                      : "layers",
                     std::string(dtype_info(linear.dtype).name), linear.bytes * read,
                     linear.flops * (linear.is_output ? work.logit_rows : work.tokens)});
  }
  // Attention: Q K^T and P V of every query head.
  costs.push_back(
      {"attention", kv_type, work.kv_bytes, 4 * work.pairs * static_cast<double>(c.num_heads * c.head_dim)});
  return costs;
}

}  // namespace redline
