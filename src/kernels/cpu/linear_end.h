// What linear_tiles does with its sums beside bias, gate and residual, while they are in the first-level cache.
#pragma once

#include "kernels/cpu/activation.h"

namespace redline {

/// y = f(x W^T + bias), with a second matrix times (x U^T + up_bias); gate and residual come after, without one.
struct LinearEnd {
  const Activation* activation = nullptr;  ///< f; nullptr for the identity
  const void* up_weight = nullptr;         ///< U, of the shape and packed as W, or nullptr
  const float* up_bias = nullptr;          ///< [N] or nullptr
  /// Instead of y: ActivationLayout::kBf16Tiled of [rows, N]. n_begin is a multiple of 32 then, and so is n_end unless it is N.
  void* tiles = nullptr;
};

}  // namespace redline
