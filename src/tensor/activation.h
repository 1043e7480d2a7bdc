// Pointwise activation functions of linear layers.
#pragma once

#include <cstdint>

namespace redline {

enum class Activation : uint8_t {
  kSilu,       ///< x / (1 + e^-x)
  kGelu,       ///< x (1 + erf(x / sqrt 2)) / 2
  kGeluTanh,   ///< x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
  kQuickGelu,  ///< x / (1 + e^(-1.702 x))
  kRelu,
  kTanh,
  kTanh3,  ///< 3 tanh(x / 3): latent clamp of the tiny autoencoders
};

}  // namespace redline
