// Matrix products by oneDNN, measured by `redline bench --kernel onednn` for comparison. They are in a module of their
// own (bench/peers/onednn_matmul.cc) that is loaded on demand: redline itself does not depend on oneDNN.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace redline::lab {

/// y [m, n] = x [m, k] W^T, W [n, k]; x and W in the type, y in float32, rows of y `y_stride` elements apart.
struct OneDnnAsked {
  int64_t m = 0, n = 0, k = 0, y_stride = 0;
  DType type = DType::kF32;       ///< kF32, kBF16, or kW8A8: int8 by int8
  const float* scales = nullptr;  ///< kW8A8: [n], each what one unit of its column of y is worth
};

/// The functions of the module, in plain C because they cross dlopen. A product runs on the calling thread only.
struct OneDnnModule {
  const char* version;
  /// A product, or nullptr and the reason in `reason`, of `room` bytes.
  void* (*make)(const OneDnnAsked& asked, char* reason, int64_t room);
  void (*destroy)(void* product);
  int64_t (*weight_bytes)(const void* product);
  /// W, row-major, into the order that oneDNN asks for.
  void (*pack)(void* product, const void* weight, void* packed);
  /// False: oneDNN failed.
  bool (*run)(void* product, const void* x, const void* packed, float* y);
};

/// The entry point of the module.
using OneDnnEntry = const OneDnnModule* (*)();

/// The module beside this program, loaded once. unsupported: Redline was built without oneDNN; names the package.
Result<const OneDnnModule*> onednn_module();

}  // namespace redline::lab
