// EasyCache (H-EmbodVis/EasyCache, arXiv:2507.02860): predict the output's relative change from the latents' and the
// last measured ratio; skip while the sum of predictions stays below `threshold`; then velocity = latents + (velocity -
// latents) of the last computed step. The unconditional branch follows the conditional one. Last step and `warmup` are
// computed.
#include "diffusion/step_cache/rule.h"

namespace redline {

RuleInfo easycache_rule() {
  return {"easycache",
          "sum of the output's change as the latents predict it; no program runs on a skip",
          "H-EmbodVis/EasyCache",
          {{"threshold", ParameterKind::kNumber, "0.05", 0, 100, "sum below which steps are skipped"},
           {"warmup", ParameterKind::kInteger, "5", 0, 1e6, "steps that are computed first"}},
          0.05,
          [](const RuleValues& values, const RuleRequest&) -> Result<RulePlan> {
            RulePlan plan;
            plan.span = SkippedSpan::kChange;
            plan.decision = Decision::kSumBelow;
            plan.threshold = values.number("threshold");
            plan.statistic = [](int64_t) { return make_latent_change_statistic(); };
            plan.first = [warmup = values.integer("warmup")](int64_t) { return warmup; };
            plan.last = true;
            plan.follow = true;
            return plan;
          }};
}

}  // namespace redline
