// Host memory for the CPU back end and the interpreter: state pages and buffers of external values.
#pragma once

#include "backends/backend_memory.h"
#include "graph/state.h"

namespace redline {

Result<std::unique_ptr<StateMemory>> make_host_state_memory(const StatePlan& plan, std::span<const int64_t> num_pages);

Result<std::unique_ptr<BackendBuffer>> make_host_buffer(int64_t bytes);

}  // namespace redline
