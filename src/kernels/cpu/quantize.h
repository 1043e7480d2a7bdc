// Quantizing matrices to block formats. These kernels have a table of their own: files are made with them, no step
// calls them.
#pragma once

#include "tensor/dtype.h"

namespace redline {

/// Rows of a matrix as blocks of another type: the same bits on every instruction set, those of llama.cpp's quantizer.
struct QuantizeArgs {
  DType source;          ///< kF32, kF16, kBF16
  const void* x;         ///< [rows, cols] dense; cols is a multiple of the block
  const float* weights;  ///< [cols]: how much an error in a column counts; nullptr: judged by the elements themselves
  void* out;
  int64_t rows, cols;
};
/// False: an element is not finite, and its block is undefined.
using QuantizeFn = bool (*)(const QuantizeArgs&);

struct QuantizeKernels {
  QuantizeFn to[kNumDTypes] = {};  ///< nullptr: no block format
};

#ifndef REDLINE_ISA_NS
/// The kernels of the base set that cpu_kernels() uses. Errors of cpu_kernels().
Result<const QuantizeKernels*> quantize_kernels();
/// The kernels of the base set of a name of cpu_kernels_for, for tests; the CPU must support it.
QuantizeKernels quantize_kernels_for(std::string_view isa);
#endif

}  // namespace redline
