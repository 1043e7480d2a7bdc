// Valid paths for output files.
#pragma once

#include <string>

#include "base/error.h"

namespace redline {

/// Returns `path` with links resolved, for writers that create a temporary file and rename it: a rename would replace a
/// link or a device (/dev/full, /dev/stdout) instead of writing to it. invalid_argument: `path` exists and is not a
/// regular file.
Result<std::string> output_path(const std::string& path);

}  // namespace redline
