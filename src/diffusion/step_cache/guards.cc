#include "diffusion/step_cache/guards.h"

namespace redline {

bool MaxConsecutive::computes() {
  if (limit < 0 || consecutive < limit) return false;
  consecutive = 0;
  return true;
}

void MaxConsecutive::decided(int64_t step, bool skips) {
  if (!skips) {
    if (!is_sticky) consecutive = 0;
    return;
  }
  if (!is_sticky || last_skipped < 0) ++consecutive;
  else if (step == last_skipped + 1) consecutive += consecutive == 0 ? 2 : 1;
  last_skipped = step;
}

void Guards::begin(int64_t steps) {
  if (schedule.mask_for) schedule.mask = schedule.mask_for(steps);
}

bool Guards::computes(const StepPoint& at, int64_t step_of_run) {
  return (schedule.mask.empty() && min_steps.computes(at)) || first.computes(at, step_of_run) || last.computes(at) ||
         schedule.computes(at) || max_cached.computes() || max_consecutive.computes() || max_accumulated.computes();
}

void Guards::measured(double statistic) {
  if (statistic > 0) max_accumulated.sum += statistic;
}

void Guards::decided(int64_t step, bool skips) {
  if (skips) ++max_cached.cached;
  max_consecutive.decided(step, skips);
}

}  // namespace redline
