// Runs this program again, to measure what only a new process shows: time to its first output, peak memory, or a
// different environment.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline::lab {

struct SelfRun {
  std::string out, error;         ///< what it printed
  double first_line_seconds = 0;  ///< from before its start to its first whole line of output
  double seconds = 0;             ///< to its end
};

/// Runs redline with `arguments` and waits. `environment`: "NAME=VALUE" over the caller's own.
/// unsupported: this process is not redline (a test program), or there is no /proc. cancelled: `limit_seconds`
/// passed, or `is_cancelled`, polled about ten times a second, returned true. internal: it failed; the message is its
/// last line of output.
Result<SelfRun> run_self(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                         double limit_seconds, const std::function<bool()>& is_cancelled = {});

}  // namespace redline::lab
