// Guards: conditions under which a step is computed whatever the statistic is. A rule sets their limits; every row of
// a run has its own copy, which holds the counts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "diffusion/step_cache/cache_row.h"

namespace redline {

/// Runs of fewer steps are computed throughout.
struct MinSteps {
  int64_t steps = 0;
  bool computes(const StepPoint& at) const { return at.steps < steps; }
};

/// The first steps of a run are computed.
struct FirstSteps {
  /// How many, as a function of the number of steps.
  std::function<int64_t(int64_t steps)> count = [](int64_t) { return int64_t{1}; };
  int64_t interval = 1;  ///< of these only every n-th
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
  /// [steps]: 1 computes, 0 leaves the step to the other guards and the decision. Empty: there is no mask.
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
  /// As cache-dit counts: a computed step that the decision requested does not reset the count, only this guard does,
  /// and the first skip of a later row of skips is not counted.
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
  MinSteps min_steps;  ///< without effect with a schedule
  FirstSteps first;
  LastStep last;
  Schedule schedule;
  MaxCached max_cached;
  MaxConsecutive max_consecutive;
  MaxAccumulated max_accumulated;

  /// A run of `steps` begins.
  void begin(int64_t steps);
  /// Whether a guard forces the step to be computed; `step_of_run` counts from where the row's state began.
  bool computes(const StepPoint& at, int64_t step_of_run);
  /// The statistic of a step that no guard forced.
  void measured(double statistic);
  /// Every step, once it is decided.
  void decided(int64_t step, bool skips);
};

}  // namespace redline
