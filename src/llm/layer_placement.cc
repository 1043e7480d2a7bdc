#include "llm/layer_placement.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "graph/ops/expert_linear.h"
#include "graph/split_graph.h"

namespace redline {

ModelCost model_cost(const Graph& graph, int64_t num_layers, int64_t states) {
  ModelCost model;
  model.layers.resize(static_cast<size_t>(num_layers));
  for (LayerCost& layer : model.layers) layer.bytes = states / std::max<int64_t>(num_layers, 1);
  std::set<ValueId> seen;
  const size_t first = first_op_of_layer(graph, 0);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const int64_t number = layer_of_op(op.name);
    const auto layer = static_cast<size_t>(number);
    for (const ValueId id : op.inputs) {
      if (graph.value(id).kind != ValueKind::kWeight || !seen.insert(id).second) continue;
      const int64_t bytes = graph.value(id).weight.view.bytes();
      if (number < 0 || number >= num_layers) (i < first ? model.front_bytes : model.back_bytes) += bytes;
      else (is_expert_product(op) ? model.layers[layer].expert_bytes : model.layers[layer].bytes) += bytes;
    }
    if (!is_expert_product(op) || number < 0 || number >= num_layers) continue;
    const auto& attrs = std::any_cast<const ExpertLinearAttrs&>(op.attrs);
    model.layers[layer].expert_share =
        static_cast<double>(attrs.experts_per_token) / static_cast<double>(std::max<int64_t>(attrs.num_experts, 1));
  }
  return model;
}

LayerPlacement place_layers(const ModelCost& model, const PlacementSpeeds& speeds, int64_t device_bytes) {
  const auto count = static_cast<int64_t>(model.layers.size());
  const auto evaluate = [&](int64_t layers, int64_t expert_layers) {
    LayerPlacement p{layers, expert_layers};
    double device_reads = 0, cpu_reads = 0;
    int64_t programs = layers > 0 ? 1 : 0, cpu_programs = layers < count ? 1 : 0;
    for (int64_t l = 0; l < count; ++l) {
      const LayerCost& layer = model.layers[static_cast<size_t>(l)];
      const double expert_reads = layer.expert_share * static_cast<double>(layer.expert_bytes);
      (l < layers ? device_reads : cpu_reads) += static_cast<double>(layer.bytes);
      (l < expert_layers ? device_reads : cpu_reads) += expert_reads;
      if (l < layers) p.device_bytes += layer.bytes;
      if (l < expert_layers) p.device_bytes += layer.expert_bytes;
      else if (l < layers && layer.expert_bytes > 0) ++programs, ++cpu_programs;
    }
    if (layers > 0) p.device_bytes += model.front_bytes;
    if (layers == count) p.device_bytes += model.back_bytes;
    (layers == count && count > 0 ? device_reads : cpu_reads) += static_cast<double>(model.back_bytes);
    p.seconds = device_reads / speeds.device.bytes_per_second + cpu_reads / speeds.cpu.bytes_per_second +
                static_cast<double>(programs) * speeds.device.step_seconds +
                static_cast<double>(cpu_programs) * speeds.cpu.step_seconds;
    return p;
  };
  LayerPlacement best = evaluate(0, 0);
  const bool has_experts = std::any_of(model.layers.begin(), model.layers.end(),
                                       [](const LayerCost& layer) { return layer.expert_bytes > 0; });
  for (int64_t layers = 1; layers <= count; ++layers)
    for (int64_t expert_layers = has_experts ? 0 : layers; expert_layers <= layers; ++expert_layers) {
      const LayerPlacement p = evaluate(layers, expert_layers);
      if (p.device_bytes <= device_bytes &&
          std::tie(p.seconds, p.device_bytes) < std::tie(best.seconds, best.device_bytes))
        best = p;
    }
  return best;
}

}  // namespace redline
