// Runs this program in a new process, to measure the time to its first output, its peak memory, or the effect of an
// environment.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline::lab {

struct SelfRun {
  std::string out, error;         ///< standard output and standard error
  double first_line_seconds = 0;  ///< time from before its start to its first complete line of output
  double seconds = 0;             ///< time to its end
};

/// Runs redline with `arguments` and waits. `environment`: "NAME=VALUE" in addition to the caller's environment.
/// unsupported: this process is not redline (a test program), or there is no /proc. cancelled: `limit_seconds` passed,
/// or `is_cancelled`, polled about ten times a second, returned true. internal: the process failed; the message is its
/// last line of output.
Result<SelfRun> run_self(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                         double limit_seconds, const std::function<bool()>& is_cancelled = {});

}  // namespace redline::lab
