// Arguments of the kernels that quantize matrices to block formats. Files are made with them; no step calls them.
#pragma once

#include "tensor/dtype.h"

namespace redline {

/// Arguments of the conversion of a matrix's rows to blocks of another type. All instruction sets give the same bits,
/// those of llama.cpp's quantizer.
struct QuantizeArgs {
  DType source;   ///< kF32, kF16, kBF16
  const void* x;  ///< [rows, cols] dense; cols is a multiple of the block
  /// [cols]: weight of an error in each column; nullptr: weights are derived from the elements themselves.
  const float* weights;
  void* out;
  int64_t rows, cols;
};
/// Returns false if an element is not finite; its block is then undefined.
using QuantizeFn = bool (*)(const QuantizeArgs&);

}  // namespace redline
