// Memory and task order of a program, independent of the device.
#pragma once

#include <span>

#include "graph/program.h"

namespace redline {

/// Arena offsets for `stages`: live ranges at `bounds`, larger values first, each at the lowest free offset, in place
/// where a stage allows it.
ArenaPlan plan_arena(const Graph& graph, std::span<const StagePlan> stages, const SymbolValues& bounds, bool reuse,
                     int64_t alignment = 64);
/// internal: two values with overlapping live ranges share bytes and are not a declared in-place pair.
Status check_arena(const ArenaPlan& plan, std::span<const StagePlan> stages);
/// Fills program.tasks, waits, notifies and events from program.stages and program.arena_plan.
Status plan_events(Program& program);

}  // namespace redline
