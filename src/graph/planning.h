// Memory and order of a program, the same for every device.
#pragma once

#include <span>

#include "graph/program.h"

namespace redline {

/// Arena offsets for `stages`: live ranges at `bounds`, larger values first, each at the lowest free offset, in place where a
/// stage allows it.
ArenaPlan plan_arena(const Graph& graph, std::span<const StagePlan> stages, const SymbolValues& bounds, bool reuse,
                     int64_t alignment = 64);
/// internal: two values whose live ranges overlap share bytes (other than a declared in-place pair).
Status check_arena(const ArenaPlan& plan, std::span<const StagePlan> stages);
/// Fills program.tasks, waits, notifies and events from program.stages and program.arena_plan.
Status plan_events(Program& program);

}  // namespace redline
