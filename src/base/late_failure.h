// Failures in destructors, which cannot return them: the program checks for them before it exits.
#pragma once

namespace redline {

/// Records a failure that has already been reported on standard error.
void note_late_failure();
bool has_late_failure();

}  // namespace redline
