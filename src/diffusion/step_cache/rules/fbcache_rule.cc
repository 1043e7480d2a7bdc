// FBCache (chengzeyi/ParaAttention, first_block_cache): skips while the first block's residual on the image tokens
// differs from that of the last computed step by less than `threshold` (relative L1), and reuses the residual of the
// other blocks for image and text.
//
// The original averages the test over the batch; here each row decides for itself, so a batch of one is the original.
// Its Taylor mode drops the text residual; here image and text are always forecast together.
#include "diffusion/step_cache/rule.h"

namespace redline {
namespace {

constexpr RuleParameter kFbcacheParameters[] = {
    {"threshold", ParameterKind::kNumber, "0.08", 0, 100, "relative L1 below which a step is skipped; 0 never skips",
     /*sets_cost=*/true},
    {"warmup", ParameterKind::kInteger, "0", 0, 1e6, "steps that are computed first"},
    {"blocks", ParameterKind::kInteger, "1", 1, 64, "blocks of the probe"},
};

Result<RulePlan> plan_fbcache(const RuleValues& values, const RuleRequest&) {
  RulePlan plan;
  plan.span = SkippedSpan::kMiddle;
  plan.decision = Decision::kBelow;
  plan.threshold = values.number("threshold");
  plan.statistic = [](int64_t) { return make_probe_residual_statistic(); };
  plan.guards.first.count = [warmup = values.integer("warmup")](int64_t) { return warmup; };
  plan.front_blocks = values.integer("blocks");
  return plan;
}

}  // namespace

extern const RuleRow kFbcacheRule = {
    .name = "fbcache",
    .summary = "first block's residual against the last computed step",
    .source = "chengzeyi/ParaAttention",
    .parameters = kFbcacheParameters,
    .threshold_at_half = 0.08,
    .knob = {TuningKnob::Kind::kThreshold, "threshold", 1e-3, 10},
    .plan = plan_fbcache,
};

}  // namespace redline
