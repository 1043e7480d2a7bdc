// Matrix products by oneDNN, which `redline bench --kernel onednn` measures for comparison. They are in a separate
// module (bench/peers/onednn_matmul.cc) that is loaded on demand: redline itself does not depend on oneDNN.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace redline::lab {

/// A product y [m, n] = x [m, k] W^T with W [n, k]. x and W have the type, y is float32, and rows of y are `y_stride`
/// elements apart.
struct OneDnnWorkload {
  int64_t m = 0, n = 0, k = 0, y_stride = 0;
  DType type = DType::kF32;       ///< kF32, kBF16, or kI8: int8 by int8
  const float* scales = nullptr;  ///< kI8: [n], the scale of each column of y
};

/// The functions of the module, in plain C because they cross dlopen. A matrix product runs only on the calling thread.
struct OneDnnModule {
  const char* version;
  /// Returns a primitive, or nullptr and the message in `reason`, a buffer of `room` bytes.
  void* (*make)(const OneDnnWorkload& workload, char* reason, int64_t room);
  void (*destroy)(void* product);
  int64_t (*weight_bytes)(const void* product);
  /// Packs row-major W into oneDNN's preferred layout.
  void (*pack)(void* product, const void* weight, void* packed);
  /// Runs the product. Returns false if oneDNN failed.
  bool (*run)(void* product, const void* x, const void* packed, float* y);
};

/// The entry point of the module.
using OneDnnEntry = const OneDnnModule* (*)();

/// Returns the module in the folder of this program, loaded once. unsupported: Redline was built without oneDNN; the
/// message names the package.
Result<const OneDnnModule*> onednn_module();

}  // namespace redline::lab
