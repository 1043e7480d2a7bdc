// The kernels of the module as the host launches them. They are compiled in several sources, side by side.
#pragma once

#include <cuda_runtime.h>

#include "kernels/tiles/kernels.h"

namespace redline::tiles {

struct CudaKernel {
  const void* function;
  unsigned threads;
  bool needs_shared;
};

/// A block for each tile of a stage. Arguments: ProgramTables, number of the stage.
const CudaKernel& stage_kernel(KernelId kernel);
/// The same of products and of the other kernels; nullptr: not one of them.
const CudaKernel* product_kernel(KernelId kernel);
const CudaKernel* other_kernel(KernelId kernel);
/// A block for each list of tasks. Argument: ProgramTables.
const CudaKernel& persistent_step();

}  // namespace redline::tiles
