// A static check of compiled programs.
#pragma once

#include "graph/program.h"

namespace redline {

/// Proves of a program whose values are float32 rows, at the sizes of a step, that
///   - every wait is satisfied, and no task waits for itself through others;
///   - two tasks that touch the same bytes of the arena, one of them writing, are ordered by events or by the order of
///     a list.
/// Tasks run in an order that events allow, with a vector clock for each worker and event; a range of bytes remembers
/// its last writer and its readers since. One valid order suffices. Linear in tasks times workers.
///
/// Which rows a work partition (TaskGrid::Kind::kWork) writes depends on the step: each is assumed to write a separate
/// range. The schedule is that of these sizes. internal: names the two stages, or the event that is never notified.
Status check_program(const Program& program, const SymbolValues& sizes);

}  // namespace redline
