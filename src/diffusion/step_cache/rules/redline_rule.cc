// redline: forecasts the model output itself along a measured line in u(sigma), and corrects the errors of these
// forecasts at every computed step. No program runs on a skipped step. docs/step_cache.md has the measurements.
//
// Which steps are computed:
//   with a budget (or a list)  a mask: the one that `redline calibrate` found for this model and these step counts,
//                              else the power law below. The time is known before the run.
//   else                       by the drift measured at computed steps, per request. Both guidance branches decide
//                              together, so that their errors stay similar and cancel in the guided difference.
//
// The last step is not forced: at equal operations an earlier step improves the result more. docs/step_cache.md,
// "Ablation", measures each of these choices.
#include <algorithm>
#include <cmath>

#include "diffusion/step_cache/rule.h"

namespace redline {
namespace {

constexpr double kPower = 1.8;

}  // namespace

std::vector<uint8_t> mask_of(const std::vector<int64_t>& computed, int64_t steps) {
  std::vector<uint8_t> mask(static_cast<size_t>(steps), 0);
  for (const int64_t step : computed)
    if (step >= 0 && step < steps) mask[step] = 1;
  return mask;
}

std::vector<uint8_t> budget_mask(const std::vector<CalibratedMask>& masks, int64_t steps, int64_t budget) {
  for (const CalibratedMask& mask : masks)
    if (mask.steps == steps && std::ssize(mask.computed) == budget) return mask_of(mask.computed, steps);
  return power_mask(steps, budget);
}

std::vector<uint8_t> power_mask(int64_t steps, int64_t budget) {
  budget = std::clamp<int64_t>(budget, 1, steps);
  std::vector<uint8_t> mask(static_cast<size_t>(steps), 0);
  // Position of the k-th computed step: dense at first, where guidance changes the output's direction at every step;
  // the last one is the step before the final one.
  const double end = static_cast<double>(steps) - 2;
  int64_t before = -1;
  for (int64_t k = 0; k < budget; ++k) {
    const double share = budget == 1 ? 0 : static_cast<double>(k) / static_cast<double>(budget - 1);
    const int64_t latest = steps - (budget - k);
    const auto wanted = static_cast<int64_t>(std::lround(std::max(end, 0.0) * std::pow(share, kPower)));
    before = std::min(std::max(wanted, before + 1), latest);
    mask[before] = 1;
  }
  return mask;
}

namespace {

constexpr RuleParameter kRedlineParameters[] = {
    {"threshold", ParameterKind::kNumber, "0.02", 0, 100, "sum of drift below which steps are skipped",
     /*sets_cost=*/true},
    {"budget", ParameterKind::kInteger, "0", 0, 1e6, "computed steps of a run; 0: the drift decides",
     /*sets_cost=*/true},
    {"steps", ParameterKind::kSteps, "", 0, 0, "computed steps, as 0-3+7+9, instead of a budget", /*sets_cost=*/true},
};

Result<RulePlan> plan_redline(const RuleValues& values, const RuleRequest& request) {
  RulePlan plan;
  plan.span = SkippedSpan::kOutput;
  plan.forecaster = make_measured_forecaster;
  plan.correct_errors = true;
  plan.share_decision = true;
  const int64_t budget = request.steps_budget > 0 ? request.steps_budget : values.integer("budget");
  if (!values.steps("steps").empty()) {
    plan.decision = Decision::kAlways;
    plan.guards.schedule.mask_for = [list = values.steps("steps")](int64_t steps) { return mask_of(list, steps); };
    return plan;
  }
  if (budget > 0) {
    plan.decision = Decision::kAlways;
    plan.budget = budget;
    plan.guards.schedule.mask_for = [masks = request.masks, budget](int64_t steps) {
      return budget_mask(masks, steps, budget);
    };
    return plan;
  }
  plan.decision = Decision::kSumBelow;
  plan.threshold = values.number("threshold");
  plan.statistic = [](int64_t) { return make_drift_statistic(); };
  plan.guards.first.count = [](int64_t) { return int64_t{2}; };
  plan.joint = true;
  plan.guards.max_consecutive.limit = 8;
  plan.guards.min_steps.steps = 8;
  return plan;
}

}  // namespace

extern const RuleRow kRedlineRule = {
    .name = "redline",
    .summary = "output along a measured line, errors corrected; budget of steps or measured drift",
    .source = "docs/step_cache.md",
    .parameters = kRedlineParameters,
    .threshold_at_half = 0.02,
    .takes_budget = true,
    .is_default = true,
    .knob = {TuningKnob::Kind::kBudget, "budget", 1, 1000},
    .plan = plan_redline,
};

}  // namespace redline
