#include "graph/split_graph.h"

#include <algorithm>
#include <charconv>

namespace redline {
namespace {

/// Returns a graph of the ops [begin, end). Its values, in their order, are those that the ops use and those whose
/// entry in `ids` is 0 before the call. Sets `ids` to the new id of each value; -1: the part does not use the value.
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

Result<std::vector<Graph>> split_graph(const Graph& graph, std::span<const size_t> cuts) {
  const size_t count = cuts.size() + 1;
  std::vector<std::vector<ValueId>> ids(count, std::vector<ValueId>(graph.values.size(), -1));
  std::vector<Graph> parts(count);
  std::vector<size_t> maker(graph.values.size(), count);  // the part that makes a value
  std::vector<bool> is_read(graph.values.size());
  for (size_t p = count; p-- > 0;) {
    const size_t begin = p > 0 ? cuts[p - 1] : 0, end = p < cuts.size() ? cuts[p] : graph.ops.size();
    for (size_t i = begin; i < end; ++i) {
      for (const ValueId id : graph.ops[i].inputs) is_read[static_cast<size_t>(id)] = true;
      for (const ValueId id : graph.ops[i].outputs) maker[static_cast<size_t>(id)] = p;
    }
    if (p == 0)
      for (const ValueId id : graph.inputs)  // one that no op reads stays an input
        if (!is_read[static_cast<size_t>(id)]) ids[0][static_cast<size_t>(id)] = 0;
    parts[p] = ops_of(graph, begin, end, ids[p]);
  }
  int crossing = 0;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind != ValueKind::kComputed || maker[v] == count) continue;
    const auto own = [&](size_t p) -> ValueInfo& { return parts[p].values[static_cast<size_t>(ids[p][v])]; };
    bool crosses = false;
    for (size_t p = maker[v] + 1; p < count; ++p) {
      if (ids[p][v] < 0) continue;
      own(p).name = fmt::format("cut.{}", crossing);
      own(p).kind = ValueKind::kInput;
      parts[p].inputs.push_back(ids[p][v]);
      crosses = true;
    }
    if (!crosses) continue;
    if (std::find(graph.outputs.begin(), graph.outputs.end(), static_cast<ValueId>(v)) != graph.outputs.end())
      return internal("graph {}: another part reads the output {}", graph.name, graph.values[v].name);
    own(maker[v]).name = fmt::format("cut.{}", crossing++);
    parts[maker[v]].outputs.push_back(ids[maker[v]][v]);
  }
  for (const ValueId id : graph.outputs) {
    const size_t part = maker[static_cast<size_t>(id)];
    if (part == count) return internal("graph {}: no op makes the output {}", graph.name, graph.value(id).name);
    parts[part].outputs.push_back(ids[part][static_cast<size_t>(id)]);
  }
  return parts;
}

int64_t layer_of_op(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    int64_t number = -1;
    const auto [last, error] = std::from_chars(name.data() + begin, name.data() + end, number);
    if (error == std::errc() && last == name.data() + end) return number;
    begin = end + 1;
  }
  return -1;
}

size_t first_op_of_layer(const Graph& graph, int64_t layer) {
  const auto first =
      std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& op) { return layer_of_op(op.name) >= layer; });
  return static_cast<size_t>(first - graph.ops.begin());
}

}  // namespace redline
