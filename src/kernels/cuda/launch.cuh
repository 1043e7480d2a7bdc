// The kernels of the module as the host launches them. Several sources compile them in parallel.
#pragma once

#include <cuda_runtime.h>

#include "kernels/tiles/kernels.h"

namespace redline::tiles {

struct CudaKernel {
  const void* function;
  unsigned threads;
  bool needs_shared;
};

/// Returns the kernel that runs a block for each tile of a stage. Arguments: ProgramTables, number of the stage.
const CudaKernel& stage_kernel(KernelId kernel);
/// Return the kernel from the source of products and from the other source; nullptr if the source does not have it.
const CudaKernel* product_kernel(KernelId kernel);
const CudaKernel* other_kernel(KernelId kernel);
/// Returns the kernel that runs a block for each list of tasks. Argument: ProgramTables.
const CudaKernel& persistent_step();

}  // namespace redline::tiles
