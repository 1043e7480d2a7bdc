// PyTorch's random number generator on a CPU, so that a seed gives the same image as there.
#pragma once

#include <cstdint>
#include <optional>
#include <random>

#include "diffusion/noise_source.h"

namespace redline {

/// torch.Generator("cpu").manual_seed(seed), and torch.randn(n, generator=...) in float32 by draw(): the same bits as
/// PyTorch 2 on x86 CPUs with AVX2. PyTorch without AVX2, and on other architectures, takes sines and logarithms from
/// other libraries and itself differs from that by up to 3e-6.
class TorchGenerator final : public NoiseSource {
 public:
  /// torch takes seeds from -2^63 to 2^64 - 1; a negative one is its two's complement: static_cast<uint64_t>(-1).
  /// Only the low 32 bits count, as in torch.
  explicit TorchGenerator(uint64_t seed) : engine_(static_cast<uint32_t>(seed)) {}

  /// Below 16 values: one at a time in float64, by pairs, of which the second may be kept for the next such call. From
  /// 16 on: float32 by blocks of 16, the last block is regenerated over the end if the size is not a multiple of 16.
  void draw(std::span<float> out) override;

 private:
  double draw_double();
  double uniform_double();

  std::mt19937 engine_;
  std::optional<double> kept_;  ///< second value of a pair
};

}  // namespace redline
