// DBCache (vipshop/cache-dit): FBCache's test on the residual of the first Fn blocks, with warm-up, caps and masks. The
// middle blocks are reused, the last Bn blocks always run. A threshold of 1 or more always skips. Fn and Bn are the
// denoiser's front and tail blocks (RulePlan::front_blocks, tail_blocks).
//
// The count of consecutive skips reproduces the original exactly (MaxConsecutive::is_sticky).
#include "diffusion/step_cache/rule.h"

namespace redline {
namespace {

constexpr RuleParameter kDbcacheParameters[] = {
    {"threshold", ParameterKind::kNumber, "0.08", 0, 100, "relative L1 below which a step is skipped",
     /*sets_cost=*/true},
    {"fn", ParameterKind::kInteger, "8", 1, 64, "blocks of the probe"},
    {"bn", ParameterKind::kInteger, "0", 0, 64, "blocks after the skipped span"},
    {"warmup", ParameterKind::kInteger, "8", 0, 1e6, "steps that are computed first"},
    {"warmup_interval", ParameterKind::kInteger, "1", 1, 1e6, "only every n-th of them"},
    {"max_accumulated", ParameterKind::kNumber, "-1", -1, 1e6, "cap on the sum of differences; -1: none"},
    {"mask", ParameterKind::kName, "", 0, 0, "slow, medium, fast or ultra: steps that are computed anyway"},
    {"policy", ParameterKind::kName, "dynamic", 0, 0, "outside the mask: dynamic tests, static skips",
     /*sets_cost=*/true},
};

Result<RulePlan> plan_dbcache(const RuleValues& values, const RuleRequest&) {
  RulePlan plan;
  plan.span = SkippedSpan::kMiddle;
  plan.threshold = values.number("threshold");
  plan.decision = plan.threshold >= 1 ? Decision::kAlways : Decision::kBelow;
  if (plan.threshold < 1) plan.statistic = [](int64_t) { return make_probe_residual_statistic(); };
  plan.guards.first.count = [warmup = values.integer("warmup")](int64_t) { return warmup; };
  plan.guards.first.interval = values.integer("warmup_interval");
  plan.guards.max_accumulated.limit = values.number("max_accumulated");
  plan.guards.max_consecutive.is_sticky = true;
  plan.front_blocks = values.integer("fn");
  plan.tail_blocks = values.integer("bn");
  const std::string policy = values.text("policy"), mask = values.text("mask");
  if (policy != "dynamic" && policy != "static")
    return invalid_argument("policy is \"{}\"; it can be dynamic or static", policy);
  if (!mask.empty()) {
    REDLINE_TRY(policy_mask(mask, 28));
    plan.guards.schedule.mask_for = [mask](int64_t steps) {
      Result<std::vector<uint8_t>> made = policy_mask(mask, steps);
      return made.ok() ? *made : std::vector<uint8_t>(static_cast<size_t>(steps), 1);
    };
    if (policy == "static") {
      plan.decision = Decision::kAlways;
      plan.statistic = nullptr;
      plan.guards.max_accumulated.limit = -1;
    }
  }
  return plan;
}

}  // namespace

extern const RuleRow kDbcacheRule = {
    .name = "dbcache",
    .summary = "residual of the first blocks, with warm-up, caps and masks",
    .source = "vipshop/cache-dit",
    .parameters = kDbcacheParameters,
    .threshold_at_half = 0.08,
    .knob = {TuningKnob::Kind::kThreshold, "threshold", 1e-3, 0.999},
    .plan = plan_dbcache,
};

}  // namespace redline
