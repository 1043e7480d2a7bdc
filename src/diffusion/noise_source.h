// The interface through which solvers and pipelines draw random numbers.
#pragma once

#include <span>

namespace redline {

class NoiseSource {
 public:
  virtual ~NoiseSource() = default;
  /// Fills `out` with samples of a standard normal distribution: one call for each torch.randn of the diffusers
  /// pipeline, of the same size. A source for rows in another order than torch's draws in torch's order and permutes.
  virtual void draw(std::span<float> out) = 0;
};

}  // namespace redline
