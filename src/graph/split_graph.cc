#include "graph/split_graph.h"

#include <algorithm>
#include <charconv>

namespace redline {
namespace {

/// Ops [begin, end), and the values that they use, in their order, besides those for which `ids` is 0 already. `ids`:
/// the new number of each, -1: not used.
Graph ops_of(const Graph& graph, size_t begin, size_t end, std::vector<ValueId>& ids) {
  Graph part;
  part.name = graph.name;
  for (size_t i = begin; i < end; ++i)
    for (const std::vector<ValueId>* values : {&graph.ops[i].inputs, &graph.ops[i].outputs})
      for (const ValueId id : *values) ids[static_cast<size_t>(id)] = 0;
  for (size_t v = 0; v < ids.size(); ++v) {
    if (ids[v] < 0) continue;
    ids[v] = static_cast<ValueId>(part.values.size());
    part.values.push_back(graph.values[v]);
  }
  const auto renumber = [&](std::vector<ValueId>& values) {
    for (ValueId& id : values) id = ids[static_cast<size_t>(id)];
  };
  for (size_t i = begin; i < end; ++i) {
    Op& op = part.ops.emplace_back(graph.ops[i]);
    renumber(op.inputs);
    renumber(op.outputs);
  }
  for (const ValueId id : graph.inputs)
    if (const ValueId own = ids[static_cast<size_t>(id)]; own >= 0) part.inputs.push_back(own);
  return part;
}

}  // namespace

Result<SplitGraph> split_graph(const Graph& graph, size_t first_of_back) {
  SplitGraph split;
  std::vector<ValueId> front(graph.values.size(), -1), back = front;
  split.back = ops_of(graph, first_of_back, graph.ops.size(), back);
  for (const ValueId id : graph.inputs)  // one that no op reads stays an input
    if (back[static_cast<size_t>(id)] < 0) front[static_cast<size_t>(id)] = 0;
  split.front = ops_of(graph, 0, first_of_back, front);
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind != ValueKind::kComputed || front[v] < 0 || back[v] < 0) continue;
    split.crossing.push_back(fmt::format("cut.{}", split.crossing.size()));
    split.front.values[static_cast<size_t>(front[v])].name = split.crossing.back();
    split.front.outputs.push_back(front[v]);
    ValueInfo& input = split.back.values[static_cast<size_t>(back[v])];
    input.name = split.crossing.back();
    input.kind = ValueKind::kInput;
    split.back.inputs.push_back(back[v]);
  }
  for (const ValueId id : graph.outputs) {
    if (back[static_cast<size_t>(id)] < 0)
      return internal("graph {}: output {} is made before op {}", graph.name, graph.value(id).name, first_of_back);
    split.back.outputs.push_back(back[static_cast<size_t>(id)]);
  }
  return split;
}

size_t first_op_of_layer(const Graph& graph, int64_t layer) {
  const auto layer_of = [](std::string_view name) {
    for (size_t begin = 0; begin < name.size();) {
      const size_t end = std::min(name.find('.', begin), name.size());
      int64_t number = -1;
      const auto [last, error] = std::from_chars(name.data() + begin, name.data() + end, number);
      if (error == std::errc() && last == name.data() + end) return number;
      begin = end + 1;
    }
    return int64_t{-1};
  };
  const auto first =
      std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& op) { return layer_of(op.name) >= layer; });
  return static_cast<size_t>(first - graph.ops.begin());
}

}  // namespace redline
