#include "runtime/placement_speeds.h"

#include <algorithm>
#include <chrono>

#include "graph/ops/linear.h"
#include "graph/ops/scale.h"
#include "graph/split_graph.h"
#include "runtime/executable.h"

namespace redline {
namespace {

/// The fastest of some steps of one row, after one that touches all memory.
Result<double> time_graph(Graph graph, const DeviceChoice& device, RuntimeResources& runtime) {
  ExecutableOptions options;
  options.device = device;
  options.bounds[Symbol::kTokens] = 1;
  REDLINE_ASSIGN(Executable executable, Executable::make(std::move(graph), options, runtime));
  std::fill_n(executable.input("x"), num_elements(executable.inputs()[0].shape).eval(options.bounds), 1.0f);
  double fastest = 0;
  constexpr int kTimed = 3;
  for (int i = 0; i <= kTimed; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    REDLINE_TRY(executable.run(options.bounds));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i > 0) fastest = i == 1 ? seconds : std::min(fastest, seconds);
  }
  return fastest;
}

Result<PlacementSpeed> measure_speed(const ValueInfo& matrix, const DeviceChoice& device, RuntimeResources& runtime) {
  const auto build = [&](bool multiplies) {
    GraphBuilder g("speed");
    const Value x = g.input("x", DType::kF32, {Symbol::kTokens, matrix.shape[1]});
    WeightSource source = matrix.weight;
    source.file = nullptr;  // the model's graph reads it later
    g.output("y", multiplies ? linear(g, x, g.weight(matrix.name, std::move(source))) : scale(g, x, {2}));
    return g.finish();
  };
  REDLINE_ASSIGN(Graph product, build(true));
  REDLINE_ASSIGN(Graph nothing, build(false));
  PlacementSpeed speed;
  REDLINE_ASSIGN(speed.step_seconds, time_graph(std::move(nothing), device, runtime));
  REDLINE_ASSIGN(const double seconds, time_graph(std::move(product), device, runtime));
  // A small matrix takes no longer than nothing.
  speed.bytes_per_second = static_cast<double>(matrix.weight.view.bytes()) /
                           std::max(seconds - speed.step_seconds, std::max(seconds / 10, 1e-9));
  return speed;
}

}  // namespace

Result<PlacementSpeeds> measure_placement_speeds(const Graph& graph, const DeviceChoice& device,
                                                 RuntimeResources& runtime) {
  const ValueInfo* largest = nullptr;
  for (const Op& op : graph.ops) {
    if (layer_of_op(op.name) < 0) continue;
    for (const ValueId id : op.inputs) {
      const ValueInfo& value = graph.value(id);
      if (value.kind == ValueKind::kWeight && value.shape.size() == 2 && value.shape[1].is_constant() &&
          (!largest || value.weight.view.bytes() > largest->weight.view.bytes()))
        largest = &value;
    }
  }
  if (!largest) return internal("graph {}: no layer has a matrix", graph.name);
  PlacementSpeeds speeds;
  REDLINE_ASSIGN(speeds.device, measure_speed(*largest, device, runtime));
  REDLINE_ASSIGN(speeds.cpu, measure_speed(*largest, {}, runtime));
  return speeds;
}

}  // namespace redline
