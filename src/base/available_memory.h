// The memory that the process can still allocate.
#pragma once

#include <cstdint>

namespace redline {

/// Bytes that can be allocated without swapping, within the limit of the process's control group (cgroup v2). INT64_MAX
/// where the system does not report it.
int64_t available_memory();

}  // namespace redline
