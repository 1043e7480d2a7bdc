// Arena placement of computed values: live ranges over stages, then offsets in order of decreasing size, lowest free
// offset first.
#include <algorithm>

#include "graph/bound_values.h"
#include "graph/planning.h"

namespace redline {
namespace {

// Values that share memory intentionally (in-place chains) move as one block.
struct Block {
  int64_t bytes = 0, offset = -1;
  int first = 0, last = 0;
};

// A stage may write its output over `value` if each tile reads only the elements that it writes.
bool may_overwrite(const StagePlan& stage, ValueId value) {
  if (stage.in_place_of != value || value < 0) return false;
  return std::all_of(stage.reads.begin(), stage.reads.end(),
                     [&](const StageRead& read) { return read.value != value || read.reads == Reads::kTile; });
}

bool meet(int a_first, int a_last, int b_first, int b_last) { return a_first <= b_last && b_first <= a_last; }

}  // namespace

ArenaPlan plan_arena(const Graph& graph, std::span<const StagePlan> stages, const SymbolValues& bounds, bool reuse,
                     int64_t alignment) {
  const int end = static_cast<int>(stages.size());
  std::vector<int> first(graph.values.size(), -2), last(graph.values.size(), -2);
  for (ValueId id : graph.inputs) first[static_cast<size_t>(id)] = last[static_cast<size_t>(id)] = -1;
  for (int s = 0; s < end; ++s) {
    for (const StageRead& read : stages[static_cast<size_t>(s)].reads) {
      auto v = static_cast<size_t>(read.value);
      if (first[v] != -2) last[v] = s;
    }
    for (ValueId id : stages[static_cast<size_t>(s)].writes) {
      auto v = static_cast<size_t>(id);
      if (first[v] == -2) first[v] = s;
      last[v] = std::max(last[v], s);
    }
  }
  for (ValueId id : graph.outputs) last[static_cast<size_t>(id)] = end;
  // Bound values get one cache line each, live throughout: its address identifies the value until the caller binds it.
  const auto is_bound = [&](size_t v) {
    const auto has = [&](const std::vector<ValueId>& ids) {
      return std::find(ids.begin(), ids.end(), static_cast<ValueId>(v)) != ids.end();
    };
    return is_bound_name(graph.values[v].name) && (has(graph.inputs) || has(graph.outputs));
  };

  ArenaPlan plan;
  std::vector<int> slot_of(graph.values.size(), -1);
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (first[v] == -2) continue;
    const ValueInfo& info = graph.values[v];
    const bool bound = is_bound(v);
    if (bound) first[v] = -1, last[v] = end;
    const int64_t bytes = bound ? alignment
                          : info.layouts.only_f32()
                              ? num_elements(info.shape).eval(bounds) * dtype_info(info.dtype).block_bytes
                              : info.layouts.bytes(info.shape[0].eval(bounds), info.shape[1].constant());
    slot_of[v] = static_cast<int>(plan.slots.size());
    plan.slots.push_back(
        {static_cast<ValueId>(v), 0, (bytes + alignment - 1) / alignment * alignment, first[v], last[v]});
    plan.bytes_without_reuse += plan.slots.back().bytes;
  }
  if (!reuse) {
    for (ArenaSlot& slot : plan.slots) {
      slot.offset = plan.bytes;
      plan.bytes += slot.bytes;
    }
    return plan;
  }

  std::vector<int> block_of(plan.slots.size());
  std::vector<Block> blocks;
  for (size_t i = 0; i < plan.slots.size(); ++i) {  // slots come in order of value id; producers before consumers
    const ArenaSlot& slot = plan.slots[i];
    int block = -1;
    if (slot.first_stage >= 0 && slot.first_stage < end) {
      const StagePlan& stage = stages[static_cast<size_t>(slot.first_stage)];
      const ValueId under = stage.in_place_of;
      const int u = may_overwrite(stage, under) ? slot_of[static_cast<size_t>(under)] : -1;
      if (u >= 0 && static_cast<size_t>(u) < i && plan.slots[static_cast<size_t>(u)].last_stage == slot.first_stage &&
          plan.slots[static_cast<size_t>(u)].first_stage >= 0 && plan.slots[static_cast<size_t>(u)].bytes == slot.bytes)
        block = block_of[static_cast<size_t>(u)];
    }
    if (block < 0) {
      block = static_cast<int>(blocks.size());
      blocks.push_back({slot.bytes, -1, slot.first_stage, slot.last_stage});
    } else {
      blocks[static_cast<size_t>(block)].last = slot.last_stage;
    }
    block_of[i] = block;
  }

  std::vector<size_t> order(blocks.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  std::vector<const Block*> placed;
  for (size_t i : order) {
    Block& block = blocks[i];
    int64_t offset = 0;
    // `placed` is kept sorted by offset, so one walk finds the lowest gap.
    for (const Block* other : placed)
      if (meet(block.first, block.last, other->first, other->last) && other->offset < offset + block.bytes)
        offset = std::max(offset, other->offset + other->bytes);
    block.offset = offset;
    plan.bytes = std::max(plan.bytes, offset + block.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &block,
                                   [](const Block* a, const Block* b) { return a->offset < b->offset; }),
                  &block);
  }
  for (size_t i = 0; i < plan.slots.size(); ++i) plan.slots[i].offset = blocks[static_cast<size_t>(block_of[i])].offset;
  return plan;
}

Status check_arena(const ArenaPlan& plan, std::span<const StagePlan> stages) {
  for (const ArenaSlot& a : plan.slots) {
    if (a.offset < 0 || a.offset + a.bytes > plan.bytes)
      return internal("arena: value {} lies outside the arena", a.value);
    for (const ArenaSlot& b : plan.slots) {
      if (&a == &b || a.bytes == 0 || b.bytes == 0) continue;
      if (a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset) continue;
      if (!meet(a.first_stage, a.last_stage, b.first_stage, b.last_stage)) continue;
      auto over = [&](const ArenaSlot& dying, const ArenaSlot& born) {
        return born.first_stage >= 0 && dying.last_stage == born.first_stage && dying.first_stage < born.first_stage &&
               dying.offset == born.offset && may_overwrite(stages[static_cast<size_t>(born.first_stage)], dying.value);
      };
      if (!over(a, b) && !over(b, a))
        return internal("arena: values {} and {} are live at once and share bytes", a.value, b.value);
    }
  }
  return {};
}

}  // namespace redline
