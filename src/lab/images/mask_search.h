// Which steps to compute under a budget: planned on stored trajectories, then improved by trying.
//
// After DPCache (arXiv:2602.22654: dynamic programming over a cost tensor from stored trajectories) and BudCache (hill
// climbing on the outcome). Host arithmetic only; a callback measures the effect of a mask on images.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/error.h"

namespace redline::lab {

/// One uncached run: what the solver was given at each step.
struct Trajectory {
  std::vector<double> clock;                 ///< [steps] forecast_clock of each step's sigma
  std::vector<double> step_sizes;            ///< [steps] the solver added step_size * velocity
  std::vector<std::vector<float>> velocity;  ///< [steps]
};

/// Errors of the latents that leaving steps out would make on stored runs, mean of squares over elements and runs.
///
/// When errors are corrected at computed steps (StepCache, "repay"), the steps between computed j and k are the linear
/// interpolation of v_j and v_k; after the last computed step k they extrapolate the line through i, the computed step
/// before it, and k. The error of an interval is a quadratic form in the Gram matrix of the velocities, so one pass
/// over the trajectories gives all of them.
class MaskCosts {
 public:
  explicit MaskCosts(std::span<const Trajectory> trajectories);
  int64_t steps() const { return steps_; }
  /// Of the steps between computed steps i < j < k, where i is the one before j, or -1; k == steps(): to the end.
  double cost(int64_t i, int64_t j, int64_t k) const;

 private:
  int64_t steps_ = 0;
  std::vector<double> clock_, step_sizes_;
  std::vector<double> gram_;  ///< [steps, steps], mean over runs
};

/// The mask of `budget` computed steps with the least sum of cost(i, j, k), by dynamic programming over pairs:
/// O(steps^3 budget). The first `forced` steps are computed. invalid_argument: a budget below forced or above steps.
Result<std::vector<int64_t>> plan_mask(int64_t steps, int64_t budget, int64_t forced,
                                       const std::function<double(int64_t i, int64_t j, int64_t k)>& cost);

struct ClimbResult {
  std::vector<int64_t> computed;
  double error = 0;
  int64_t evaluations = 0;
};
/// Moves one computed step by up to `reach` places at a time for as long as that lowers `error`, trying at most
/// `evaluations` masks; step 0 stays. Errors of `error` end the search.
Result<ClimbResult> climb_mask(int64_t steps, std::vector<int64_t> start, int64_t reach, int64_t evaluations,
                               const std::function<Result<double>(const std::vector<int64_t>&)>& error);

}  // namespace redline::lab
