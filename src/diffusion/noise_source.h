// Where solvers and pipelines take their random numbers from.
#pragma once

#include <span>

namespace redline {

class NoiseSource {
 public:
  virtual ~NoiseSource() = default;
  /// Fills `out` with draws of a standard normal distribution: one call for each torch.randn of the pipeline that is
  /// followed, of the same size. A source for rows in another order than torch's draws in torch's and permutes.
  virtual void draw(std::span<float> out) = 0;
};

}  // namespace redline
