// Arena placement of computed values: live ranges over stages, then offsets in order of decreasing size, lowest free
// offset first.
#include <algorithm>

#include "graph/external_values.h"
#include "graph/planning.h"

namespace redline {
namespace {

// Number of later waves whose stages may run at the same time as those of a wave. Each stage with rows in order begins
// a wave. A recurrent layer has two such stages, a convolution and a scan, so stages of two layers may run at once.
constexpr int kWavesAtOnce = 2;

// A stage may write its output `born` over `value` if each tile reads only the elements that it writes.
bool may_overwrite(const StagePlan& stage, ValueId value, ValueId born) {
  if (stage.in_place_of != value || value < 0 || stage.writes.front() != born) return false;
  return std::all_of(stage.reads.begin(), stage.reads.end(),
                     [&](const StageRead& read) { return read.value != value || read.reads == Reads::kTile; });
}

bool meet(int a_first, int a_last, int b_first, int b_last) { return a_first <= b_last && b_first <= a_last; }

/// The first and last stage over which a value lives. An input lives from -1 on, an output to the number of stages.
struct LiveRange {
  static constexpr int kNone = -2;
  int first = kNone, last = kNone;
};

/// Returns true at index v if value v is an input or output that lies outside the arena.
std::vector<bool> external_values(const Graph& graph) {
  std::vector<bool> external(graph.values.size(), false);
  for (const std::vector<ValueId>* ids : {&graph.inputs, &graph.outputs})
    for (ValueId id : *ids) external[static_cast<size_t>(id)] = is_external_name(graph.value(id).name);
  return external;
}

std::vector<LiveRange> live_ranges(const Graph& graph, std::span<const StagePlan> stages,
                                   const std::vector<bool>& external) {
  const int end = static_cast<int>(stages.size());
  std::vector<LiveRange> live(graph.values.size());
  const auto of = [&](ValueId id) -> LiveRange& { return live[static_cast<size_t>(id)]; };
  for (ValueId id : graph.inputs) of(id) = {-1, -1};
  for (int s = 0; s < end; ++s) {
    for (const StageRead& read : stages[static_cast<size_t>(s)].reads)
      if (of(read.value).first != LiveRange::kNone) of(read.value).last = s;
    for (ValueId id : stages[static_cast<size_t>(s)].writes) {
      if (of(id).first == LiveRange::kNone) of(id).first = s;
      of(id).last = std::max(of(id).last, s);
    }
  }
  for (ValueId id : graph.outputs) of(id).last = end;
  for (size_t v = 0; v < live.size(); ++v)
    if (external[v] && live[v].first != LiveRange::kNone) live[v] = {-1, end};
  return live;
}

int64_t value_bytes(const ValueInfo& info, const SymbolValues& bounds) {
  if (!info.layouts.only_f32()) return info.layouts.bytes(info.shape[0].eval(bounds), info.shape[1].constant());
  return num_elements(info.shape).eval(bounds) * dtype_info(info.dtype).block_bytes;
}

/// Returns a block, still without offset, for each value that lives, in order of value id.
std::vector<ArenaBlock> make_slots(const Graph& graph, std::span<const StagePlan> stages, const SymbolValues& bounds,
                                   int64_t alignment) {
  const std::vector<bool> external = external_values(graph);
  const std::vector<LiveRange> live = live_ranges(graph, stages, external);
  std::vector<ArenaBlock> blocks;
  for (size_t v = 0; v < live.size(); ++v) {
    if (live[v].first == LiveRange::kNone) continue;
    // External values get one cache line each: an address of their own until the caller binds another.
    const int64_t bytes = external[v] ? alignment : value_bytes(graph.values[v], bounds);
    blocks.push_back({.value = static_cast<ValueId>(v),
                      .offset = 0,
                      .bytes = (bytes + alignment - 1) / alignment * alignment,
                      .first_stage = live[v].first,
                      .last_stage = live[v].last});
  }
  return blocks;
}

/// A piece of memory that gets one offset: a value, or a chain of values that are computed in place of each other.
struct Block {
  int64_t bytes = 0, offset = -1;
  int first = 0, last = 0;
};

struct Blocks {
  std::vector<Block> blocks;
  std::vector<size_t> of_block;
};

/// Returns the block whose value is overwritten by the value of `block`, or nullptr. `before`: the blocks of values
/// with smaller ids, which include all inputs of the stage that writes the value.
const ArenaBlock* slot_under(std::span<const ArenaBlock> before, const ArenaBlock& block,
                             std::span<const StagePlan> stages) {
  if (block.first_stage < 0 || block.first_stage >= static_cast<int>(stages.size())) return nullptr;
  const StagePlan& stage = stages[static_cast<size_t>(block.first_stage)];
  const auto under = std::lower_bound(before.begin(), before.end(), stage.in_place_of,
                                      [](const ArenaBlock& a, ValueId id) { return a.value < id; });
  if (under == before.end() || !may_overwrite(stage, under->value, block.value)) return nullptr;
  const bool dies = under->last_stage == block.first_stage && under->first_stage >= 0;
  return dies && under->bytes == block.bytes ? &*under : nullptr;
}

/// Returns the last stage that may run at the same time as stage `last`, because the waves overlap. Memory that is last
/// used in stage `last` is free after it.
int last_of_waves(std::span<const int> waves, int last) {
  if (last < 0 || last >= static_cast<int>(waves.size()) || waves[static_cast<size_t>(last)] < 0) return last;
  const int wave = waves[static_cast<size_t>(last)];
  const auto runs = [&](int s) {
    const int other = s < static_cast<int>(waves.size()) ? waves[static_cast<size_t>(s)] : -1;
    return other >= wave && other <= wave + kWavesAtOnce;
  };
  while (runs(last + 1)) ++last;
  return last;
}

Blocks make_blocks(std::span<const ArenaBlock> blocks, std::span<const StagePlan> stages) {
  Blocks made;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const ArenaBlock& block = blocks[i];
    if (const ArenaBlock* under = slot_under(blocks.first(i), block, stages)) {
      made.of_block.push_back(made.of_block[static_cast<size_t>(under - blocks.data())]);
      made.blocks[made.of_block.back()].last = block.last_stage;
    } else {
      made.of_block.push_back(made.blocks.size());
      made.blocks.push_back({block.bytes, -1, block.first_stage, block.last_stage});
    }
  }
  return made;
}

/// Sets offsets and returns the bytes of all blocks.
int64_t place(std::vector<Block>& blocks) {
  std::vector<Block*> order(blocks.size());
  std::transform(blocks.begin(), blocks.end(), order.begin(), [](Block& block) { return &block; });
  std::stable_sort(order.begin(), order.end(), [](const Block* a, const Block* b) { return a->bytes > b->bytes; });
  int64_t bytes = 0;
  std::vector<const Block*> placed;
  for (Block* block : order) {
    int64_t offset = 0;
    // `placed` is kept sorted by offset, so one walk finds the lowest gap.
    for (const Block* other : placed)
      if (meet(block->first, block->last, other->first, other->last) && other->offset < offset + block->bytes)
        offset = std::max(offset, other->offset + other->bytes);
    block->offset = offset;
    bytes = std::max(bytes, offset + block->bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), block,
                                   [](const Block* a, const Block* b) { return a->offset < b->offset; }),
                  block);
  }
  return bytes;
}

}  // namespace

ArenaPlan plan_arena(const Graph& graph, std::span<const StagePlan> stages, const SymbolValues& bounds, bool reuse,
                     int64_t alignment, std::span<const int> waves) {
  ArenaPlan plan;
  plan.blocks = make_slots(graph, stages, bounds, alignment);
  for (ArenaBlock& block : plan.blocks) {
    block.offset = plan.bytes_without_reuse;
    plan.bytes_without_reuse += block.bytes;
  }
  plan.bytes = plan.bytes_without_reuse;
  if (!reuse) return plan;
  Blocks made = make_blocks(plan.blocks, stages);
  for (Block& block : made.blocks) block.last = last_of_waves(waves, block.last);
  plan.bytes = place(made.blocks);
  for (size_t i = 0; i < plan.blocks.size(); ++i) plan.blocks[i].offset = made.blocks[made.of_block[i]].offset;
  return plan;
}

Status check_arena(const ArenaPlan& plan, std::span<const StagePlan> stages) {
  for (const ArenaBlock& a : plan.blocks) {
    if (a.offset < 0 || a.offset + a.bytes > plan.bytes)
      return internal("arena: value {} is outside the arena", a.value);
    for (const ArenaBlock& b : plan.blocks) {
      if (&a == &b || a.bytes == 0 || b.bytes == 0) continue;
      if (a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset) continue;
      if (!meet(a.first_stage, a.last_stage, b.first_stage, b.last_stage)) continue;
      auto over = [&](const ArenaBlock& dying, const ArenaBlock& born) {
        return born.first_stage >= 0 && dying.last_stage == born.first_stage && dying.first_stage < born.first_stage &&
               dying.offset == born.offset &&
               may_overwrite(stages[static_cast<size_t>(born.first_stage)], dying.value, born.value);
      };
      if (!over(a, b) && !over(b, a))
        return internal("arena: values {} and {} are live at once and share bytes", a.value, b.value);
    }
  }
  return {};
}

}  // namespace redline
