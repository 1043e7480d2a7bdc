// Chooses the steps to compute under a budget: plans a mask on recorded trajectories, then improves it by hill
// climbing. After DPCache (arXiv:2602.22654: dynamic programming over a cost tensor from recorded trajectories) and
// BudCache (hill climbing on the result). All arithmetic is on the host; a callback measures the effect of a mask on
// images.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/error.h"

namespace redline::lab {

/// The inputs of the solver at each step of one uncached run.
struct Trajectory {
  std::vector<double> u;                     ///< [steps] u(sigma) of each step
  std::vector<double> step_sizes;            ///< [steps] step sizes: the solver added step_size * model output
  std::vector<std::vector<float>> velocity;  ///< [steps] model outputs
};

/// The mean squared error of the latents, over elements and recorded runs, caused by skipping steps.
///
/// When errors are corrected at computed steps (StepCache), the outputs between computed steps j and k are the linear
/// interpolation of v_j and v_k; after the last computed step k they are extrapolated from k and i, the computed step
/// before it. The error of an interval is a quadratic form in the Gram matrix of the model outputs, so one pass over
/// the trajectories gives all errors.
class MaskCosts {
 public:
  explicit MaskCosts(std::span<const Trajectory> trajectories);
  int64_t steps() const { return steps_; }
  /// Returns the error of the skipped steps between the computed steps j and k. i is the computed step before j, or -1.
  /// k == steps(): the error until the end.
  double cost(int64_t i, int64_t j, int64_t k) const;

 private:
  int64_t steps_ = 0;
  std::vector<double> u_, step_sizes_;
  std::vector<double> gram_;  ///< [steps, steps], mean over runs
};

/// Returns the mask of `budget` computed steps with the smallest sum of cost(i, j, k), by dynamic programming over
/// pairs: O(steps^3 budget). The first `forced` steps are computed. invalid_argument: a budget below forced or above
/// steps.
Result<std::vector<int64_t>> plan_mask(int64_t steps, int64_t budget, int64_t forced,
                                       const std::function<double(int64_t i, int64_t j, int64_t k)>& cost);

struct ClimbResult {
  std::vector<int64_t> computed;
  double error = 0;
  int64_t evaluations = 0;
};
/// Repeatedly moves one computed step by up to `reach` positions while that lowers `error`, evaluating at most
/// `evaluations` masks; step 0 is fixed. An error returned by `error` ends the search.
Result<ClimbResult> climb_mask(int64_t steps, std::vector<int64_t> start, int64_t reach, int64_t evaluations,
                               const std::function<Result<double>(const std::vector<int64_t>&)>& error);

}  // namespace redline::lab
