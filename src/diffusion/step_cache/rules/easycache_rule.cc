// EasyCache (H-EmbodVis/EasyCache, arXiv:2507.02860): predicts the output's relative change from that of the latents
// and the last measured ratio, and skips while the sum of predictions stays below `threshold`. The output is then the
// latents plus (output - latents) of the last computed step. The unconditional branch follows the conditional one. The
// first `warmup` steps and the last step are computed.
#include "diffusion/step_cache/rule.h"

namespace redline {
namespace {

constexpr RuleParameter kEasycacheParameters[] = {
    {"threshold", ParameterKind::kNumber, "0.05", 0, 100, "sum below which steps are skipped", /*sets_cost=*/true},
    {"warmup", ParameterKind::kInteger, "5", 0, 1e6, "steps that are computed first"},
};

Result<RulePlan> plan_easycache(const RuleValues& values, const RuleRequest&) {
  RulePlan plan;
  plan.span = SkippedSpan::kResidual;
  plan.decision = Decision::kSumBelow;
  plan.threshold = values.number("threshold");
  plan.statistic = [](int64_t) { return make_latent_change_statistic(); };
  plan.guards.first.count = [warmup = values.integer("warmup")](int64_t) { return warmup; };
  plan.guards.last.is_computed = true;
  plan.share_decision = true;
  return plan;
}

}  // namespace

extern const RuleRow kEasycacheRule = {
    .name = "easycache",
    .summary = "sum of the output's change as the latents predict it; no program runs on a skip",
    .source = "H-EmbodVis/EasyCache",
    .parameters = kEasycacheParameters,
    .threshold_at_half = 0.05,
    .knob = {TuningKnob::Kind::kThreshold, "threshold", 1e-4, 20},
    .plan = plan_easycache,
};

}  // namespace redline
