// A static check of compiled programs.
#pragma once

#include "graph/program.h"

namespace redline {

/// Proves two properties of a program whose values are float32 rows, for a step of these sizes:
///   - every wait is satisfied, and no task waits for itself through others;
///   - two tasks that touch the same bytes of the arena, one of them writing, are ordered by events or by the order of
///     a list.
/// Tasks run in an order that events allow, with a vector clock for each worker and event; a range of bytes remembers
/// its last writer and its readers since. One valid order suffices. Linear in tasks times workers.
///
/// The rows that a work partition (TaskGrid::Kind::kWork) writes depend on the step: each partition is assumed to write
/// a separate range. internal: names the two stages, or the event that is never notified.
Status check_program(const Program& program, const SymbolValues& sizes);

}  // namespace redline
