#include "graph/state.h"

#include <algorithm>

namespace redline {
namespace {

constexpr int64_t kAlignment = 64;

int64_t element_bytes(const StateAttrs& a, StateStorage storage) {
  if (storage == StateStorage::kReference) return sizeof(double);
  return a.kind == StateKind::kRecurrent ? static_cast<int64_t>(sizeof(float)) : kv_element_bytes(a.format);
}

int64_t head_elements(const StateAttrs& a, StateStorage storage) {
  return kKvPageTokens * (storage == StateStorage::kReference ? a.head_dim : kv_head_width(a.head_dim));
}

int64_t state_bytes(const StateAttrs& a, StateStorage storage) {
  const int64_t elements = a.kind == StateKind::kRecurrent ? a.elements : 2 * a.num_heads * head_elements(a, storage);
  return elements * element_bytes(a, storage);
}

}  // namespace

KvPlace StatePlan::kv_place(const Graph& graph, ValueId id) const {
  const StateAttrs& a = graph.value(id).state;
  const StatePlace at = place(id);
  KvPlace kv;
  kv.group = at.group;
  kv.element_bytes = element_bytes(a, storage);
  kv.head_bytes = head_elements(a, storage) * kv.element_bytes;
  kv.keys = at.offset;
  kv.values = at.offset + a.num_heads * kv.head_bytes;
  return kv;
}

int64_t StatePlan::bytes_per_token() const {
  int64_t bytes = 0;
  for (const StateGroup& group : groups)
    if (group.kind == StateKind::kKeyValue) bytes += group.page_bytes / kKvPageTokens;
  return bytes;
}

StatePlan plan_states(const Graph& graph, StateStorage storage) {
  StatePlan plan;
  plan.storage = storage;
  plan.places.resize(graph.values.size());
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const ValueInfo& value = graph.values[v];
    if (value.kind != ValueKind::kState) continue;
    const StateAttrs& a = value.state;
    auto group = std::find_if(plan.groups.begin(), plan.groups.end(), [&](const StateGroup& g) {
      return g.kind == a.kind && g.window == a.window && g.name == a.group;
    });
    if (group == plan.groups.end()) group = plan.groups.insert(group, StateGroup{a.kind, a.window, {}, 0, a.group});
    if (!a.group.empty()) group->members.push_back({value.name, a, group->page_bytes});
    plan.places[v] = {static_cast<size_t>(group - plan.groups.begin()), group->page_bytes};
    group->values.push_back(static_cast<ValueId>(v));
    group->page_bytes += (state_bytes(a, storage) + kAlignment - 1) / kAlignment * kAlignment;
  }
  return plan;
}

void set_kv_format(Graph& graph, KvFormat format) {
  for (ValueInfo& value : graph.values)
    if (value.kind == ValueKind::kState && value.state.kind == StateKind::kKeyValue) value.state.format = format;
}

void set_kv_formats(Graph& graph, const KvFormats& formats, size_t first_cpu_op) {
  set_kv_format(graph, formats.device);
  for (size_t i = first_cpu_op; i < graph.ops.size(); ++i)
    for (const ValueId id : graph.ops[i].inputs)
      if (ValueInfo& value = graph.values[static_cast<size_t>(id)];
          value.kind == ValueKind::kState && value.state.kind == StateKind::kKeyValue)
        value.state.format = formats.cpu;
}

}  // namespace redline
