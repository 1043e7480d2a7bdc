#include "runtime/placement_speeds.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/topology.h"
#include "graph/ops/linear.h"
#include "graph/ops/scale.h"
#include "graph/split_graph.h"
#include "runtime/executable.h"
#include "runtime/runtime_resources.h"

namespace redline {
namespace {

/// Returns the seconds of the fastest of some steps of one row, after a first step that touches all memory.
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

/// Returns the larger of this machine's last-level cache and the largest L2 cache of any GPU, 128 MiB.
int64_t cache_bytes() {
  constexpr int64_t kMaxL2 = int64_t{128} << 20;
  return std::max<int64_t>(kMaxL2, cache_sizes().l3);
}

Result<PlacementSpeed> measure_speed(std::span<const ValueInfo* const> matrices, const DeviceChoice& device,
                                     RuntimeResources& runtime) {
  const auto build = [&](bool multiplies) {
    GraphBuilder g("speed");
    const Value x = g.input("x", DType::kF32, {Symbol::kTokens, matrices[0]->shape[1]});
    if (!multiplies) g.output("y", scale(g, x, {2}));
    for (size_t i = 0; multiplies && i < matrices.size(); ++i) {
      WeightSource source = matrices[i]->weight;
      source.file = nullptr;  // the model's graph reads it later; any bytes have the same speed
      g.output(fmt::format("y{}", i), linear(g, x, g.weight(matrices[i]->name, std::move(source))));
    }
    return g.finish();
  };
  REDLINE_ASSIGN(Graph product, build(true));
  REDLINE_ASSIGN(Graph nothing, build(false));
  PlacementSpeed speed;
  REDLINE_ASSIGN(speed.step_seconds, time_graph(std::move(nothing), device, runtime));
  REDLINE_ASSIGN(const double seconds, time_graph(std::move(product), device, runtime));
  // Small matrices take no longer than nothing.
  int64_t bytes = 0;
  for (const ValueInfo* matrix : matrices) bytes += matrix->weight.view.bytes();
  speed.bytes_per_second =
      static_cast<double>(bytes) / std::max(seconds - speed.step_seconds, std::max(seconds / 10, 1e-9));
  return speed;
}

}  // namespace

std::vector<const ValueInfo*> matrices_to_time(const Graph& graph, int64_t wanted_bytes) {
  std::vector<const ValueInfo*> all;
  std::set<ValueId> seen;
  for (const Op& op : graph.ops) {
    if (layer_of_op(op.name) < 0) continue;
    for (const ValueId id : op.inputs) {
      const ValueInfo& value = graph.value(id);
      if (value.kind == ValueKind::kWeight && value.shape.size() == 2 && value.shape[1].is_constant() &&
          seen.insert(id).second)
        all.push_back(&value);
    }
  }
  const auto bytes_of = [](const ValueInfo* value) { return value->weight.view.bytes(); };
  std::stable_sort(all.begin(), all.end(), [&](auto* a, auto* b) { return bytes_of(a) > bytes_of(b); });
  std::vector<const ValueInfo*> taken;
  int64_t bytes = 0;
  for (const ValueInfo* value : all) {
    const bool is_alike = taken.empty() || (value->shape[1] == taken[0]->shape[1] &&
                                            value->weight.view.dtype == taken[0]->weight.view.dtype);
    if (!is_alike || (!taken.empty() && bytes >= wanted_bytes)) continue;
    taken.push_back(value);
    bytes += bytes_of(value);
  }
  return taken;
}

Result<PlacementSpeeds> measure_placement_speeds(const Graph& graph, const DeviceChoice& device,
                                                 RuntimeResources& runtime) {
  REDLINE_ASSIGN(const std::shared_ptr<OpenDevice> opened, runtime.device(device));
  REDLINE_ASSIGN(const OpenDevice::Memory memory, opened->memory());
  const std::vector<const ValueInfo*> matrices =
      matrices_to_time(graph, std::min(2 * cache_bytes(), memory.usable() / 2));
  if (matrices.empty()) return internal("graph {}: no layer has a matrix", graph.name);
  PlacementSpeeds speeds;
  REDLINE_ASSIGN(speeds.device, measure_speed(matrices, device, runtime));
  REDLINE_ASSIGN(speeds.cpu, measure_speed(matrices, {}, runtime));
  return speeds;
}

}  // namespace redline
