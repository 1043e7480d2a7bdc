// Arguments of the kernels that quantize matrices to block formats. Files are made with them; no step calls them.
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
/// Returns false: an element is not finite, and its block is undefined.
using QuantizeFn = bool (*)(const QuantizeArgs&);

}  // namespace redline
