#include "graph/hoist_invariants.h"

#include <algorithm>
#include <tuple>

#include "graph/external_values.h"
#include "graph/ops/group_norm.h"
#include "graph/ops/layer_norm.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/timestep_embedding.h"

namespace redline {
namespace {

bool is_costly(const Op& op) {
  if (op.def->flops || op.def->num_matrices > 0) return true;
  return op.def == &kLayerNorm || op.def == &kRmsNorm || op.def == &kGroupNorm || op.def == &kTimestepEmbedding;
}

/// The concatenation of the graphs. A value of several graphs is identified by the first graph that has it.
class Joined {
 public:
  explicit Joined(std::span<Graph* const> graphs) : graphs_(graphs) {
    std::map<std::string, size_t> given, made;  // by name: external inputs; outputs of earlier graphs
    for (size_t g = 0; g < graphs.size(); ++g) {
      const Graph& graph = *graphs[g];
      std::vector<size_t>& places = place_.emplace_back(graph.values.size(), kNowhere);
      for (ValueId id : graph.inputs) {
        const std::string& name = graph.value(id).name;
        if (const auto at = made.find(name); at != made.end()) places[static_cast<size_t>(id)] = at->second;
        else if (const auto known = given.find(name); known != given.end())
          places[static_cast<size_t>(id)] = known->second;
        else given[name] = places[static_cast<size_t>(id)] = add(g, id);
      }
      for (size_t v = 0; v < places.size(); ++v)
        if (places[v] == kNowhere) places[v] = add(g, static_cast<ValueId>(v));
      for (size_t o = 0; o < graph.ops.size(); ++o) ops.push_back({g, o});
      for (ValueId id : graph.outputs) made[graph.value(id).name] = places[static_cast<size_t>(id)];
    }
  }
  struct Where {
    size_t graph, index;
  };
  size_t place(size_t graph, ValueId id) const { return place_[graph][static_cast<size_t>(id)]; }
  const ValueInfo& value(size_t place) const { return graphs_[values[place].graph]->values[values[place].index]; }
  const Op& op(size_t i) const { return graphs_[ops[i].graph]->ops[ops[i].index]; }
  std::vector<size_t> places(size_t i, const std::vector<ValueId>& ids) const {
    std::vector<size_t> result;
    result.reserve(ids.size());
    for (ValueId id : ids) result.push_back(place(ops[i].graph, id));
    return result;
  }

  std::vector<Where> values, ops;

 private:
  static constexpr size_t kNowhere = SIZE_MAX;
  size_t add(size_t graph, ValueId id) {
    values.push_back({graph, static_cast<size_t>(id)});
    return values.size() - 1;
  }
  std::span<Graph* const> graphs_;
  std::vector<std::vector<size_t>> place_;
};

/// Decides which ops are hoisted.
class Choice {
 public:
  Choice(std::span<Graph* const> graphs, const Joined& joined, const HoistOptions& options)
      : joined_(joined), options_(options), is_constant(joined.values.size()), is_output(joined.values.size()),
        goes(joined.ops.size()) {
    for (size_t g = 0; g < graphs.size(); ++g)
      for (ValueId id : graphs[g]->outputs)
        if (graphs[g]->value(id).name.rfind(options.private_prefix, 0) != 0) is_output[joined.place(g, id)] = true;
    std::vector<bool> made_at_cost(joined.values.size());
    for (size_t v = 0; v < joined.values.size(); ++v) {
      const ValueInfo& info = joined.value(v);
      is_constant[v] = info.kind == ValueKind::kInput && options.constants.contains(info.name);
    }
    worth_.resize(joined.ops.size());
    for (size_t i = 0; i < joined.ops.size(); ++i) {
      bool constant = true, cost = is_costly(joined.op(i));
      for (size_t v : joined.places(i, joined.op(i).inputs)) {
        constant &= is_constant[v] || joined.value(v).kind == ValueKind::kWeight;
        cost = cost || made_at_cost[v];
      }
      goes[i] = constant;
      worth_[i] = cost;
      for (size_t v : joined.places(i, joined.op(i).outputs)) is_constant[v] = constant, made_at_cost[v] = cost;
    }
    while (leave_cheap()) {}
  }

  /// Returns true at the index of each value that a hoisted op produces.
  std::vector<bool> gone() const {
    std::vector<bool> result(joined_.values.size());
    for (size_t i = 0; i < joined_.ops.size(); ++i)
      if (goes[i])
        for (size_t v : joined_.places(i, joined_.op(i).outputs)) result[v] = true;
    return result;
  }
  /// Returns true at the index of each hoisted value that must be stored because a remaining op or the caller reads it.
  std::vector<bool> kept(const std::vector<bool>& gone) const {
    std::vector<bool> result(joined_.values.size());
    for (size_t i = 0; i < joined_.ops.size(); ++i)
      if (!goes[i])
        for (size_t v : joined_.places(i, joined_.op(i).inputs)) result[v] = true;
    for (size_t v = 0; v < result.size(); ++v) result[v] = gone[v] && (result[v] || is_output[v]);
    return result;
  }

 private:
  int64_t elements(size_t v) const { return num_elements(joined_.value(v).shape).eval(options_.sizes); }

  /// Un-hoists cheap ops at the boundary whose results are not worth their memory. Ops that read the same values are
  /// considered together, because their shared inputs are stored only once. Returns true if any were found.
  bool leave_cheap() {
    std::vector<int> staying_readers(joined_.values.size()), going_readers(joined_.values.size());
    for (size_t i = 0; i < joined_.ops.size(); ++i)
      for (size_t v : joined_.places(i, joined_.op(i).inputs)) ++(goes[i] ? going_readers : staying_readers)[v];
    std::map<std::vector<size_t>, std::vector<size_t>> groups;  // keyed by the values read
    for (size_t i = 0; i < joined_.ops.size(); ++i) {
      if (!goes[i] || is_costly(joined_.op(i))) continue;
      const std::vector<size_t> out = joined_.places(i, joined_.op(i).outputs);
      const bool at_border =
          std::all_of(out.begin(), out.end(), [&](size_t v) { return going_readers[v] == 0 && !is_output[v]; }) &&
          std::any_of(out.begin(), out.end(), [&](size_t v) { return staying_readers[v] > 0; });
      if (!at_border) continue;
      std::vector<size_t> reads;
      for (size_t v : joined_.places(i, joined_.op(i).inputs))
        if (joined_.value(v).kind != ValueKind::kWeight) reads.push_back(v);
      std::sort(reads.begin(), reads.end());
      reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
      groups[reads].push_back(i);
    }
    bool found = false;
    for (const auto& [reads, members] : groups) {
      int64_t made = 0, read = 0;
      for (size_t i : members)
        for (size_t v : joined_.places(i, joined_.op(i).outputs)) made += elements(v);
      for (size_t v : reads)  // values stored anyway cost nothing
        if (joined_.value(v).kind == ValueKind::kComputed && staying_readers[v] == 0 && !is_output[v])
          read += elements(v);
      if (made <= read && worth_[members[0]]) continue;
      found = true;
      for (size_t i : members) goes[i] = false;
    }
    return found;
  }

  const Joined& joined_;
  const HoistOptions& options_;

 public:
  std::vector<bool> is_constant, is_output, goes;

 private:
  std::vector<bool> worth_;  ///< true for each value to which a costly op contributes
};

/// Removes values that no op refers to and inputs that no op reads.
void drop_unused(Graph& graph) {
  std::vector<bool> used(graph.values.size());
  for (const Op& op : graph.ops)
    for (const auto* ids : {&op.inputs, &op.outputs})
      for (ValueId id : *ids) used[static_cast<size_t>(id)] = true;
  for (ValueId id : graph.outputs) used[static_cast<size_t>(id)] = true;
  std::erase_if(graph.inputs, [&](ValueId id) { return !used[static_cast<size_t>(id)]; });
  std::vector<ValueId> moved(graph.values.size(), -1);
  std::vector<ValueInfo> values;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (!used[v]) continue;
    moved[v] = static_cast<ValueId>(values.size());
    values.push_back(std::move(graph.values[v]));
  }
  graph.values = std::move(values);
  const auto renumber = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) id = moved[static_cast<size_t>(id)];
  };
  for (Op& op : graph.ops) renumber(op.inputs), renumber(op.outputs);
  renumber(graph.inputs);
  renumber(graph.outputs);
}

/// Returns the hoisted ops as a graph. A matrix that several ops name appears once.
Graph extract(const Joined& joined, const Choice& choice, const std::vector<std::string>& kept_names,
              const std::string& name) {
  Graph once;
  once.name = name;
  std::map<size_t, ValueId> ids;
  using Weight = std::tuple<std::string, const void*, DType>;
  std::map<Weight, ValueId> weights;
  const auto id_of = [&](size_t v) {
    if (const auto at = ids.find(v); at != ids.end()) return at->second;
    const ValueInfo& info = joined.value(v);
    const auto id = static_cast<ValueId>(once.values.size());
    if (info.kind == ValueKind::kWeight && !info.weight.source_row) {
      const auto [at, is_new] = weights.emplace(Weight{info.name, info.weight.view.data, info.dtype}, id);
      if (!is_new && once.value(at->second).shape == info.shape) return ids[v] = at->second;
    }
    once.values.push_back(info);
    if (info.kind == ValueKind::kInput) once.inputs.push_back(id);
    if (!kept_names[v].empty()) {
      once.values.back().name = kept_names[v];
      once.outputs.push_back(id);
    }
    return ids[v] = id;
  };
  for (size_t i = 0; i < joined.ops.size(); ++i) {
    if (!choice.goes[i]) continue;
    Op op = joined.op(i);
    for (auto* list : {&op.inputs, &op.outputs})
      for (ValueId& id : *list) id = id_of(joined.place(joined.ops[i].graph, id));
    once.ops.push_back(std::move(op));
  }
  return once;
}

}  // namespace

Result<HoistedGraphs> hoist_invariants(std::span<Graph* const> graphs, const HoistOptions& options) {
  const Joined joined(graphs);
  const Choice choice(graphs, joined, options);
  const std::vector<bool> gone = choice.gone(), kept = choice.kept(gone);
  HoistedGraphs split;
  if (std::none_of(kept.begin(), kept.end(), [](bool is_kept) { return is_kept; })) return split;
  std::vector<std::string> names(kept.size());
  int64_t count = 0;
  for (size_t v = 0; v < kept.size(); ++v)
    if (kept[v]) names[v] = fmt::format("{}{}.{}", kExternalPrefix, options.name, count++);
  split.once = extract(joined, choice, names, options.name);

  size_t first = 0;  // index of the graph's first op among all ops
  for (size_t g = 0; g < graphs.size(); ++g) {
    Graph& graph = *graphs[g];
    for (ValueId id : graph.outputs)
      if (const size_t v = joined.place(g, id); gone[v] && choice.is_output[v])
        split.moved_outputs[graph.value(id).name] = names[v];
    std::erase_if(graph.outputs, [&](ValueId id) { return gone[joined.place(g, id)]; });
    std::vector<Op> staying;
    const size_t num_ops = graph.ops.size();
    for (size_t o = 0; o < num_ops; ++o)
      if (!choice.goes[first + o]) staying.push_back(std::move(graph.ops[o]));
    first += num_ops;
    graph.ops = std::move(staying);
    std::vector<bool> is_input(graph.values.size());
    for (ValueId id : graph.inputs) is_input[static_cast<size_t>(id)] = true;
    for (size_t i = 0; i < graph.values.size(); ++i) {
      const auto id = static_cast<ValueId>(i);
      const size_t v = joined.place(g, id);
      if (!kept[v]) continue;
      graph.values[i].name = names[v];
      if (is_input[i]) continue;
      graph.values[i].kind = ValueKind::kInput;
      graph.inputs.push_back(id);
    }
  }
  for (Graph* graph : graphs) {
    drop_unused(*graph);
    REDLINE_TRY(graph->check());
  }
  drop_unused(split.once);
  REDLINE_TRY(split.once.check());
  return split;
}

}  // namespace redline
