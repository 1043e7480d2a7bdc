// DBCache (vipshop/cache-dit): FBCache's test on the residual of the first Fn blocks, with warm-up, caps and masks; the
// middle is reused, the last Bn blocks always run. Order of checks: warm-up, mask, cached steps, consecutive steps,
// accumulated difference, threshold. A threshold of 1 or more always skips. Fn and Bn are what the denoiser's probe and
// head are built with (RulePlan::probe_blocks, tail_blocks).
//
// The count of consecutive skips is the original's, kinks included: a run that the threshold ends keeps its count for
// the next one, and the first skip of a later run adds nothing (StepCache::count_skip).
#include "diffusion/step_cache/rule.h"

namespace redline {

RuleInfo dbcache_rule() {
  return {"dbcache",
          "residual of the first blocks, with warm-up, caps and masks",
          "vipshop/cache-dit",
          {{"threshold", ParameterKind::kNumber, "0.08", 0, 100, "relative L1 below which a step is skipped"},
           {"fn", ParameterKind::kInteger, "8", 1, 64, "blocks of the probe"},
           {"bn", ParameterKind::kInteger, "0", 0, 64, "blocks after the skipped span"},
           {"warmup", ParameterKind::kInteger, "8", 0, 1e6, "steps that are computed first"},
           {"warmup_interval", ParameterKind::kInteger, "1", 1, 1e6, "only every n-th of them"},
           {"max_accumulated", ParameterKind::kNumber, "-1", -1, 1e6, "cap on the sum of differences; -1: none"},
           {"mask", ParameterKind::kName, "", 0, 0, "slow, medium, fast or ultra: steps that are computed anyway"},
           {"policy", ParameterKind::kName, "dynamic", 0, 0, "outside the mask: dynamic tests, static skips"}},
          0.08,
          [](const RuleValues& values, const RuleRequest&) -> Result<RulePlan> {
            RulePlan plan;
            plan.span = SkippedSpan::kBody;
            plan.threshold = values.number("threshold");
            plan.decision = plan.threshold >= 1 ? Decision::kAlways : Decision::kBelow;
            if (plan.threshold < 1) plan.statistic = [](int64_t) { return make_probe_residual_statistic(); };
            plan.first = [warmup = values.integer("warmup")](int64_t) { return warmup; };
            plan.first_interval = values.integer("warmup_interval");
            plan.max_accumulated = values.number("max_accumulated");
            plan.sticky_count = true;
            plan.probe_blocks = values.integer("fn");
            plan.tail_blocks = values.integer("bn");
            const std::string policy = values.text("policy"), mask = values.text("mask");
            if (policy != "dynamic" && policy != "static")
              return invalid_argument("policy is \"{}\"; it can be dynamic or static", policy);
            if (!mask.empty()) {
              REDLINE_TRY(policy_mask(mask, 28));
              plan.schedule = [mask](int64_t steps) {
                Result<std::vector<uint8_t>> made = policy_mask(mask, steps);
                return made.ok() ? *made : std::vector<uint8_t>(static_cast<size_t>(steps), 1);
              };
              if (policy == "static") {
                plan.decision = Decision::kAlways;
                plan.statistic = nullptr;
                plan.max_accumulated = -1;
              }
            }
            return plan;
          }};
}

}  // namespace redline
