// The epilogue of linear_tiles besides bias, gate and residual, applied while the accumulators are in L1.
#pragma once

#include "kernels/cpu/activation.h"

namespace redline {

/// An epilogue y = f(x W^T + bias); with a second matrix U, y = f(x W^T + bias) * (x U^T + up_bias). Gate and residual
/// apply after that, without a second matrix only.
struct LinearEnd {
  const Activation* activation = nullptr;  ///< f; nullptr: identity
  const void* up_weight = nullptr;         ///< U, same shape and packing as W, or nullptr
  const float* up_bias = nullptr;          ///< [N] or nullptr
  /// Output that is written instead of y: ActivationLayout::kBf16Tiled of [rows, N]. Then n_begin is a multiple of 32,
  /// and so is n_end unless it is N.
  void* tiles = nullptr;
};

}  // namespace redline
