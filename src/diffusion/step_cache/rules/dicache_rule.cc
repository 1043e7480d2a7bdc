// DiCache (Bujiazi/DiCache, arXiv:2508.17356): compares the state after a shallow probe with the previous step and
// skips while the sum of its relative changes stays below `threshold`. The residual of the whole stack is extrapolated
// by a ratio measured on the probe's residual (gamma_forecaster.cc). Steps 0 .. int(retention N) and the last are
// computed.
//
// `error`: y is the change of the probe's state; minus is |that - the change of the input|, with a published threshold
// of 0.08 without warm-up.
#include "diffusion/step_cache/rule.h"

namespace redline {
namespace {

constexpr RuleParameter kDicacheParameters[] = {
    {"threshold", ParameterKind::kNumber, "0.4", 0, 100, "sum below which steps are skipped", /*sets_cost=*/true},
    {"error", ParameterKind::kName, "y", 0, 0, "y or minus"},
    {"retention", ParameterKind::kNumber, "0.2", 0, 1, "share of the first steps, which are computed"},
    {"blocks", ParameterKind::kInteger, "1", 1, 64, "blocks of the probe"},
};

Result<RulePlan> plan_dicache(const RuleValues& values, const RuleRequest&) {
  const std::string error = values.text("error");
  if (error != "y" && error != "minus") return invalid_argument("error is \"{}\"; it can be y or minus", error);
  RulePlan plan;
  plan.span = SkippedSpan::kBlocks;
  plan.decision = Decision::kSumBelow;
  plan.threshold = values.number("threshold");
  plan.statistic = [minus = error == "minus"](int64_t) { return make_probe_state_statistic(minus); };
  plan.forecaster = make_gamma_forecaster;
  plan.guards.first.count = [retention = values.number("retention")](int64_t steps) {
    return static_cast<int64_t>(retention * static_cast<double>(steps)) + 1;
  };
  plan.guards.last.is_computed = true;
  plan.front_blocks = values.integer("blocks");
  return plan;
}

}  // namespace

extern const RuleRow kDicacheRule = {
    .name = "dicache",
    .summary = "change of a shallow probe; residual scaled by the probe's",
    .source = "Bujiazi/DiCache",
    .parameters = kDicacheParameters,
    .threshold_at_half = 0.4,
    .knob = {TuningKnob::Kind::kThreshold, "threshold", 1e-4, 50},
    .plan = plan_dicache,
};

}  // namespace redline
