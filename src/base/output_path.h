// Where a result may be written.
#pragma once

#include <string>

#include "base/error.h"

namespace redline {

/// The file that `path` stands for, with links followed: for writers that make a file under a temporary name and rename
/// it. A rename would put a file in the place of a link or a device (/dev/full, /dev/stdout) instead of writing to it.
/// invalid_argument: `path` is there and is no regular file.
Result<std::string> output_path(const std::string& path);

}  // namespace redline
