// Failures in destructors, which cannot return them: the program checks for them before it exits.
#pragma once

namespace redline {

/// Remembers that something failed, which has been reported on standard error.
void note_late_failure();
bool has_late_failure();

}  // namespace redline
