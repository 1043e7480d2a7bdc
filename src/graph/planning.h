// Memory and task order of a program, independent of the device.
#pragma once

#include <span>
#include <vector>

#include "graph/program.h"

namespace redline {

/// Plans arena offsets for the values of `stages`. Live ranges are computed at `bounds`; larger values are placed
/// first, each at the lowest free offset, or in place where a stage allows it.
/// `waves` is empty or plan_waves(stages). Stages of consecutive recurrences run at the same time, so the memory of a
/// value is then not reused within its own recurrence and the next one.
ArenaPlan plan_arena(const Graph& graph, std::span<const StagePlan> stages, const SymbolValues& bounds, bool reuse,
                     int64_t alignment = 64, std::span<const int> waves = {});
/// Checks a plan. internal: two values with overlapping live ranges share bytes and are not a declared in-place pair.
Status check_arena(const ArenaPlan& plan, std::span<const StagePlan> stages);
/// Fills the schedule of `program` from program.stages and program.arena_plan.
Status plan_events(Program& program);

/// Returns for each stage the number of stages with rows_in_order up to and including it, counted from the start of its
/// run of stages that can be cut at rows; -1 for stages outside such a run. Empty if no run contains a stage with
/// rows_in_order.
std::vector<int> plan_waves(std::span<const StagePlan> stages);
/// Sets program.wavefront. `waves` is a non-empty result of plan_waves. A recurrence is computed in chunks of rows; the
/// stages after it, and the recurrence of the next layer, start on a chunk once it is complete. The (layer, chunk)
/// pairs thus run in waves, as in FractalTensor (SOSP 2024). internal: events of some tasks wait for each other.
Status plan_wavefront(Program& program, std::vector<int> waves, int chunks);

}  // namespace redline
