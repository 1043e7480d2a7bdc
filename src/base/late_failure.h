// Failures that a destructor meets and cannot return: the program asks for them before it ends.
#pragma once

namespace redline {

/// Remembers that something failed, which has been reported on standard error.
void note_late_failure();
bool has_late_failure();

}  // namespace redline
