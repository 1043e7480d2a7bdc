// TaylorSeer (Shenyi-Z/TaylorSeer, arXiv:2503.06923): `warmup` full steps, then a full step every `interval`; in
// between a Taylor series in the step number, with derivatives from step warmup - 1 on.
//
// The original forecasts the output of every attention and MLP before its gate and recomputes the gates. Here the
// series forecasts one tensor, the residual of the whole stack, which contains the old gates. Schedule and series are
// the original's; the tensor is not (28 MB per term on FLUX instead of 2 GiB).
#include "diffusion/step_cache/rule.h"

namespace redline {
namespace {

constexpr RuleParameter kTaylorseerParameters[] = {
    {"interval", ParameterKind::kInteger, "6", 1, 1e6, "steps from one full step to the next", /*sets_cost=*/true},
    {"order", ParameterKind::kInteger, "1", 0, 8, "of the series"},
    {"warmup", ParameterKind::kInteger, "3", 1, 1e6, "steps that are computed first"},
};

Result<RulePlan> plan_taylorseer(const RuleValues& values, const RuleRequest&) {
  RulePlan plan;
  plan.span = SkippedSpan::kBlocks;
  plan.decision = Decision::kAlways;
  const int64_t interval = values.integer("interval"), warmup = values.integer("warmup");
  plan.guards.schedule.mask_for = [interval, warmup](int64_t steps) {
    std::vector<uint8_t> mask(static_cast<size_t>(steps), 0);
    for (int64_t step = 0; step < steps; ++step) mask[step] = step < warmup || (step - warmup + 1) % interval == 0;
    return mask;
  };
  plan.forecaster = [order = values.integer("order"), warmup] { return make_taylor_forecaster(order, warmup - 2); };
  return plan;
}

}  // namespace

extern const RuleRow kTaylorseerRule = {
    .name = "taylorseer",
    .summary = "a full step every `interval`, Taylor series in between",
    .source = "Shenyi-Z/TaylorSeer",
    .parameters = kTaylorseerParameters,
    .knob = {TuningKnob::Kind::kInteger, "interval", 1, 64},
    .plan = plan_taylorseer,
};

}  // namespace redline
