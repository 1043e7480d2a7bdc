// Memory and task order of a program, independent of the device.
#pragma once

#include <span>
#include <vector>

#include "graph/program.h"

namespace redline {

/// Arena offsets for `stages`: live ranges at `bounds`, larger values first, each at the lowest free offset, in place
/// where a stage allows it.
/// `waves`: empty, or plan_waves(stages): then the memory of a value is not taken by the same and the next recurrence,
/// for stages of different recurrences run at once.
ArenaPlan plan_arena(const Graph& graph, std::span<const StagePlan> stages, const SymbolValues& bounds, bool reuse,
                     int64_t alignment = 64, std::span<const int> waves = {});
/// internal: two values with overlapping live ranges share bytes and are not a declared in-place pair.
Status check_arena(const ArenaPlan& plan, std::span<const StagePlan> stages);
/// Fills the schedule of `program` from program.stages and program.arena_plan.
Status plan_events(Program& program);

/// For each stage -1, or how many stages with rows in order there are up to it, counted from the beginning of a run of
/// stages that cut rows. Empty: no run has a stage with rows in order.
std::vector<int> plan_waves(std::span<const StagePlan> stages);
/// Sets program.wavefront. `waves`: of plan_waves, not empty. A recurrence is computed chunk after chunk of rows; what
/// follows it, and the recurrence of the next layer, begins when its chunk is there: wave after wave of (layer, chunk)
/// pairs, as in FractalTensor (SOSP 2024). internal: the events of some tasks wait for each other.
Status plan_wavefront(Program& program, std::vector<int> waves, int chunks);

}  // namespace redline
