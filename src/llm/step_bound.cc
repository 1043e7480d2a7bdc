#include "llm/step_bound.h"

#include <algorithm>

namespace redline {

std::vector<EngineProfile::OpCost> op_costs(const TextModel& model, const StepWork& work, double kv_bytes,
                                            const char* kv_type) {
  const DecoderConfig& c = model.config;
  std::vector<EngineProfile::OpCost> costs;
  for (const TextModel::LinearCost& linear : model.linear_costs) {
    if (linear.is_output && work.logit_rows == 0) continue;
    costs.push_back({linear.is_output ? "output" : "layers", std::string(dtype_info(linear.dtype).name), linear.bytes,
                     linear.flops * (linear.is_output ? work.logit_rows : work.tokens)});
  }
  // Q K^T and P V of every query head.
  const double heads_and_layers = static_cast<double>(c.num_heads * c.head_dim * c.num_layers);
  costs.push_back({"attention", kv_type, kv_bytes * work.positions, 4 * work.pairs * heads_and_layers});
  return costs;
}

double least_seconds(const EngineProfile::OpCost& op, double read_bytes_per_s, double operations_per_s) {
  const double reading = read_bytes_per_s > 0 ? op.bytes / read_bytes_per_s : 0;
  const double arithmetic = operations_per_s > 0 ? op.flops / operations_per_s : 0;
  return std::max(reading, arithmetic);
}

double least_seconds(std::span<const EngineProfile::OpCost> costs, const MachineLimits& limits) {
  double seconds = 0;
  for (const EngineProfile::OpCost& op : costs) {
    const auto peak = limits.operations_per_s.find(op.type);
    seconds += least_seconds(op, limits.read_bytes_per_s, peak == limits.operations_per_s.end() ? 0 : peak->second);
  }
  return seconds;
}

}  // namespace redline
