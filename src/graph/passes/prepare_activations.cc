// Inserts a prepare_x between an activation and the linear ops that read it in a layout other than float32
// (Target::activation_layouts), one for all readers that use the same layouts.
#include <algorithm>
#include <map>

#include "graph/ops/prepare_x.h"
#include "graph/pass.h"

namespace redline {
namespace {

/// The layouts that the matrices of `op` use for input 0.
ActivationLayouts wanted_layouts(const Graph& graph, const Op& op, const Target& target) {
  return target.activation_layouts(graph.value(op.inputs[1]).dtype);
}

Status prepare_activations(Graph& graph, const Target& target) {
  // A value that only linear ops read, all in the same layouts, is stored that way by its producer if the producer
  // supports it.
  const auto readers = graph.readers();
  for (Op& op : graph.ops) {
    if (!op.def->prepares_output) continue;
    const ValueId x = op.outputs[0];
    const auto& list = readers[static_cast<size_t>(x)];
    const bool is_output = std::find(graph.outputs.begin(), graph.outputs.end(), x) != graph.outputs.end();
    // The conversion buffers whole rows in scratch.
    if (is_output || list.empty() || graph.value(x).shape[1].constant() * 4 > target.max_prepared_row_bytes()) continue;
    const Op& first = graph.ops[static_cast<size_t>(list[0])];
    if (first.def->num_matrices == 0) continue;
    const ActivationLayouts layouts = wanted_layouts(graph, first, target);
    const bool agreed = std::all_of(list.begin(), list.end(), [&](int reader) {
      const Op& r = graph.ops[static_cast<size_t>(reader)];
      return r.def->num_matrices > 0 && std::count(r.inputs.begin(), r.inputs.end(), x) == 1 && r.inputs[0] == x &&
             wanted_layouts(graph, r, target) == layouts;
    });
    if (agreed) graph.values[static_cast<size_t>(x)].layouts = layouts;
  }

  struct Prepared {
    ValueId x, value;
  };
  std::vector<Prepared> made;
  std::vector<Op> ops;
  for (Op& op : graph.ops) {
    if (op.def->num_matrices > 0) {
      const ValueId x = op.inputs[0];
      const ActivationLayouts layouts = wanted_layouts(graph, op, target);
      if (!(graph.value(x).layouts == layouts)) {
        ValueId prepared = -1;
        for (const Prepared& p : made)
          if (p.x == x && graph.value(p.value).layouts == layouts) prepared = p.value;
        if (prepared < 0) {
          prepared = static_cast<ValueId>(graph.values.size());
          ValueInfo info = graph.value(x);
          info.kind = ValueKind::kComputed;
          info.name += ".prepared";
          info.layouts = layouts;
          graph.values.push_back(std::move(info));
          made.push_back({x, prepared});
          ops.push_back({&kPrepareX, graph.value(prepared).name, {x}, {prepared}, {}});
        }
        op.inputs[0] = prepared;
      }
    }
    ops.push_back(std::move(op));
  }
  graph.ops = std::move(ops);
  return {};
}

}  // namespace

extern const GraphPass kPrepareActivations = {
    .name = "prepare_activations", .phase = PassPhase::kLayout, .rewrite_for = prepare_activations};

}  // namespace redline
