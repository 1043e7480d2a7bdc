// A non-owning tensor: weights in a mapped file, test data.
#pragma once

#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace redline {

/// A tensor in memory that the view does not own: row-major, dense, last axis fastest. The owner of `data` (a
/// MappedFile, a vector) must outlive the view; `data` may be unaligned.
struct TensorView {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;

  int64_t num_elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  int64_t bytes() const {
    const int64_t n = num_elements(), rows = n == 0 || shape.empty() ? 0 : n / shape.back();
    return row_bytes(dtype, n) + (rows - 1) * dtype_info(dtype).row_bytes;
  }
};

}  // namespace redline
