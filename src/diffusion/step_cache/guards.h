// Guards: conditions under which a step is computed regardless of the statistic. A rule sets their limits; every row of
// a run has its own copy with the counts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "diffusion/step_cache/cache_row.h"

namespace redline {

/// Runs with fewer steps are computed completely.
struct MinSteps {
  int64_t steps = 0;
  bool computes(const StepPoint& at) const { return at.steps < steps; }
};

/// The first steps of a run are computed.
struct FirstSteps {
  /// Number of first steps, as a function of the number of steps of the run.
  std::function<int64_t(int64_t steps)> count = [](int64_t) { return int64_t{1}; };
  int64_t interval = 1;  ///< of the first steps only every n-th one is computed
  bool computes(const StepPoint& at, int64_t step_of_run) const {
    return step_of_run < count(at.steps) && step_of_run % interval == 0;
  }
};

/// The last step is computed.
struct LastStep {
  bool is_computed = false;
  bool computes(const StepPoint& at) const { return is_computed && at.step == at.steps - 1; }
};

/// A fixed mask of computed steps.
struct Schedule {
  /// Returns the mask, [steps]: 1 computes the step, 0 leaves it to the other guards and the decision. Empty: no mask.
  std::function<std::vector<uint8_t>(int64_t steps)> mask_for;
  std::vector<uint8_t> mask;
  bool computes(const StepPoint& at) const { return at.step < std::ssize(mask) && mask[at.step] != 0; }
};

/// At most `limit` steps of a run are skipped; -1: no limit.
struct MaxCached {
  int64_t limit = -1;
  int64_t cached = 0;
  bool computes() const { return limit >= 0 && cached >= limit; }
};

/// At most `limit` steps in a row are skipped; -1: no limit.
struct MaxConsecutive {
  int64_t limit = -1;
  /// Counts like cache-dit: a computed step resets the count only if this guard has forced it, not if the decision has
  /// requested it; and the first skip of a later series of skips is not counted.
  bool is_sticky = false;
  int64_t consecutive = 0, last_skipped = -1;
  bool computes();
  void decided(int64_t step, bool skips);
};

/// Steps are skipped until the sum of the run's statistics reaches `limit`; <= 0: no limit.
struct MaxAccumulated {
  double limit = -1;
  double sum = 0;
  bool computes() const { return limit > 0 && sum >= limit; }
};

/// All guards, in order of evaluation.
struct Guards {
  MinSteps min_steps;  ///< no effect if there is a schedule
  FirstSteps first;
  LastStep last;
  Schedule schedule;
  MaxCached max_cached;
  MaxConsecutive max_consecutive;
  MaxAccumulated max_accumulated;

  /// Computes the mask for a run of `steps`.
  void begin(int64_t steps);
  /// Returns true if a guard forces the step to be computed. `step_of_run` is 0 where the row's state began.
  bool computes(const StepPoint& at, int64_t step_of_run);
  /// Records the statistic of a step that no guard has forced.
  void measured(double statistic);
  /// Records the decision of every step.
  void decided(int64_t step, bool skips);
};

}  // namespace redline
