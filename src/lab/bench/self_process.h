// This program run once more, for what only a fresh process shows: the time to its first output, its own peak memory,
// or other settings of the environment.
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
/// unsupported: this process is not redline (a test program), or there is no /proc. cancelled: it was ended
/// because `limit_seconds` passed or `is_cancelled`, asked about ten times a second, said so. internal: it failed; the message is its own last line.
Result<SelfRun> run_self(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                         double limit_seconds, const std::function<bool()>& is_cancelled = {});

}  // namespace redline::lab
