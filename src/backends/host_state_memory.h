// State pages in host memory, for the CPU and the interpreter.
#pragma once

#include "graph/program.h"

namespace redline {

Result<std::unique_ptr<StateMemory>> make_host_state_memory(const StatePlan& plan, std::span<const int64_t> num_pages);

}  // namespace redline
