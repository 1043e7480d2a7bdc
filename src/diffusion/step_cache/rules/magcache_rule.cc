// MagCache (arXiv:2506.09045; diffusers hooks/mag_cache.py): the product of stored ratios of residual magnitudes
// estimates how much the last residual has changed. Skips while the sum of |1 - product| is at most `threshold`, and at
// most `max_skip` steps in a row; reuses the residual of the whole stack. The first `retention` of the steps are
// computed.
//
// Ratios are resampled to other step counts by nearest index. The default ratios are those of FLUX.1.
#include <cmath>

#include "diffusion/step_cache/rule.h"

namespace redline {
namespace {

const std::vector<double>& flux_ratios() {
  static const std::vector<double> kRatios = {1.0,     1.21094, 1.11719, 1.07812, 1.0625,  1.03906, 1.03125,
                                              1.03906, 1.02344, 1.03125, 1.02344, 0.98047, 1.01562, 1.00781,
                                              1.0,     1.00781, 1.0,     1.00781, 1.0,     1.0,     0.99609,
                                              0.99609, 0.98047, 0.98828, 0.96484, 0.95703, 0.93359, 0.89062};
  return kRatios;
}

/// Element round(i (n - 1) / (steps - 1)), ties to even, as NumPy rounds.
std::vector<double> stretch(const std::vector<double>& ratios, int64_t steps) {
  if (std::ssize(ratios) == steps) return ratios;
  if (steps == 1) return {ratios.back()};
  std::vector<double> stretched;
  const double scale = static_cast<double>(std::ssize(ratios) - 1) / static_cast<double>(steps - 1);
  for (int64_t i = 0; i < steps; ++i)
    stretched.push_back(ratios[static_cast<size_t>(std::nearbyint(static_cast<double>(i) * scale))]);
  return stretched;
}

constexpr RuleParameter kMagcacheParameters[] = {
    {"threshold", ParameterKind::kNumber, "0.06", 0, 100, "sum up to which steps are skipped", /*sets_cost=*/true},
    {"max_skip", ParameterKind::kInteger, "3", 0, 1e6, "skipped steps in a row"},
    {"retention", ParameterKind::kNumber, "0.2", 0, 1, "share of the steps that are computed first"},
    {"ratios", ParameterKind::kNumbers, "", 0, 0, "of this model, one a step, as 1.0/0.98/0.95"},
};

Result<RulePlan> plan_magcache(const RuleValues& values, const RuleRequest&) {
  RulePlan plan;
  plan.span = SkippedSpan::kBlocks;
  plan.decision = Decision::kSumAtMost;
  plan.threshold = values.number("threshold");
  const std::vector<double> ratios = values.list("ratios").empty() ? flux_ratios() : values.list("ratios");
  plan.statistic = [ratios](int64_t steps) { return make_magnitude_statistic(stretch(ratios, steps)); };
  plan.guards.max_consecutive.limit = values.integer("max_skip");
  plan.guards.first.count = [retention = values.number("retention")](int64_t steps) {
    return int64_t{std::lround(retention * static_cast<double>(steps))};
  };
  return plan;
}

}  // namespace

extern const RuleRow kMagcacheRule = {
    .name = "magcache",
    .summary = "stored ratios of residual lengths",
    .source = "arXiv:2506.09045",
    .parameters = kMagcacheParameters,
    .threshold_at_half = 0.06,
    .knob = {TuningKnob::Kind::kThreshold, "threshold", 1e-4, 20},
    .plan = plan_magcache,
};

}  // namespace redline
