// Storage of the states of a graph. A state belongs to a sequence and outlives the step: keys and values of
// an attention layer, or the recurrent state of a layer. States of the same kind, window and group name form a group;
// the states of a group share pages, so that one page table per sequence serves all of its layers.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace redline {

/// States of one kind, one window and one name. A page of kKeyValue holds kKvPageTokens positions of every state of the
/// group, a page of kRecurrent holds all of them once.
struct StateGroup {
  StateKind kind = StateKind::kKeyValue;
  int64_t window = 0;  ///< positions that later tokens may read; 0: all
  std::vector<ValueId> values;
  int64_t page_bytes = 0;
  std::string name = {};  ///< StateAttrs::group
  /// A state of a named group, for the comparison with the same group of another graph.
  struct Member {
    std::string name;
    StateAttrs attrs;
    int64_t offset = 0;  ///< bytes from the start of a page
  };
  std::vector<Member> members = {};  ///< empty if the group has no name
};

/// Place of one state in the pages of its group.
struct StatePlace {
  size_t group = 0;
  int64_t offset = 0;  ///< bytes from the start of a page
};

/// Places of the heads of a kKeyValue state in the pages of its group.
struct KvPlace {
  size_t group = 0;
  int64_t keys = 0, values = 0;  ///< bytes from the start of a page to those of the first head
  int64_t head_bytes = 0, element_bytes = 0;
};

enum class StateStorage : uint8_t {
  kDevice,     ///< in the state's own format; the device decides on the order of elements within a head
  kReference,  ///< float64: keys, then values, each [heads][kKvPageTokens][head_dim]
};

struct StatePlan {
  StateStorage storage = StateStorage::kDevice;
  std::vector<StateGroup> groups;

  /// Returns the place of `id`, which must be a state of the planned graph.
  StatePlace place(ValueId id) const { return places[static_cast<size_t>(id)]; }
  KvPlace kv_place(const Graph& graph, ValueId id) const;
  /// Bytes per token of all kKeyValue groups.
  int64_t bytes_per_token() const;

  std::vector<StatePlace> places;  ///< [values]; only the entries of states are valid
};

StatePlan plan_states(const Graph& graph, StateStorage storage);

/// Sets the storage format of every kKeyValue state.
void set_kv_format(Graph& graph, KvFormat format);

/// KV cache formats of the layers on the device and on the CPU. With one device only one of them is used.
struct KvFormats {
  KvFormat device, cpu;
};
/// Sets the format of every kKeyValue state: formats.cpu for states that ops from `first_cpu_op` on read,
/// formats.device for the others.
void set_kv_formats(Graph& graph, const KvFormats& formats, size_t first_cpu_op);

}  // namespace redline
