// The interface through which solvers and pipelines draw random numbers.
#pragma once

#include <span>

namespace redline {

class NoiseSource {
 public:
  virtual ~NoiseSource() = default;
  /// Fills `out` with samples of a standard normal distribution: The diffusers pipeline calls torch.randn once for each
  /// call, with the same size. If rows have another order than in torch, the source draws in torch's order and
  /// permutes.
  virtual void draw(std::span<float> out) = 0;
};

}  // namespace redline
