// mask: fixed steps are computed, the others reused (cache-dit's steps mask with the static policy). The steps are
// given, or follow from a policy: run lengths of computed and cached steps for 28 steps, scaled to other counts.
//
// cache-dit runs its first block on skipped steps too and reuses what follows it: span middle, the default. With span
// blocks, output or residual no block runs on a skipped step.
#include <algorithm>

#include "diffusion/step_cache/rule.h"

namespace redline {
namespace {

constexpr const char* kPolicies[] = {"slow", "medium", "fast", "ultra"};

struct Runs {
  std::vector<int64_t> compute, cache;
  int64_t sum() const {
    int64_t total = 0;
    for (const auto* bins : {&compute, &cache})
      for (const int64_t bin : *bins) total += bin;
    return total;
  }
  void shorten(int64_t steps) {
    for (bool from_cache = true; sum() > steps; from_cache = !from_cache) {
      std::vector<int64_t>& bins = from_cache ? cache : compute;
      if (bins.empty()) continue;
      if (--bins.back() == 0) bins.pop_back();
    }
  }
  void lengthen(int64_t steps) {
    const Runs base = *this;
    const double factor = static_cast<double>(steps) / 28 * 0.5;
    const auto grown = [&](int64_t bin) {
      return std::max<int64_t>(static_cast<int64_t>(static_cast<double>(bin) * factor), 1);
    };
    const size_t pairs = std::min(compute.size(), cache.size());
    while (sum() < steps) {
      for (size_t i = 0; i < pairs && sum() < steps; ++i) {
        compute[i] += grown(base.compute[i]);
        if (sum() < steps) cache[i] += grown(base.cache[i]);
      }
      if (sum() < steps) ++compute.back();
    }
  }
};

/// Returns the table of runs of computed and cached steps that is extended or shortened to `steps`. `policy` is an
/// index in kPolicies.
Runs runs_of(size_t policy, int64_t steps) {
  static const Runs kLong[] = {{{8, 3, 3, 2, 1, 1}, {1, 2, 2, 2, 3}},
                               {{6, 2, 2, 2, 2, 1}, {1, 3, 3, 3, 3}},
                               {{6, 1, 1, 1, 1, 1}, {1, 3, 4, 5, 4}},
                               {{4, 1, 1, 1, 1}, {2, 5, 6, 7}}};
  static const Runs kMiddle[] = {{{4, 2, 2, 2, 1}, {1, 1, 1, 1}},
                                 {{4, 2, 1, 1, 1}, {1, 1, 2, 2}},
                                 {{3, 1, 1, 1, 1}, {1, 2, 2, 3}},
                                 {{2, 1, 1, 1, 1}, {1, 2, 3, 3}}};
  static const Runs kNine[] = {{{5, 2, 1}, {1}}, {{5, 1, 1}, {1, 1}}, {{4, 1, 1}, {1, 2}}, {{3, 1, 1}, {2, 2}}};
  static const Runs kEight[] = {{{5, 1, 1}, {1}}, {{4, 1, 1}, {1, 1}}, {{3, 1, 1}, {1, 2}}, {{2, 1, 1}, {2, 2}}};
  if (steps >= 16) return kLong[policy];
  if (steps == 9) return kNine[policy];
  if (steps == 8) return kEight[policy];
  if (steps == 6) return {{3, 1}, {2}};
  if (steps == 4) return {{2, 1}, {1}};
  return kMiddle[policy];
}

}  // namespace

Result<std::vector<uint8_t>> policy_mask(const std::string& policy, int64_t steps) {
  const auto* found = std::find(std::begin(kPolicies), std::end(kPolicies), policy);
  if (found == std::end(kPolicies))
    return invalid_argument("\"{}\" is not a policy; the policies are slow, medium, fast, ultra", policy);
  if (steps < 8 && steps != 4 && steps != 6)
    return unsupported("policies have masks for 4, 6 and at least 8 steps, not for {}", steps);
  Runs runs = runs_of(static_cast<size_t>(found - kPolicies), steps);
  if (steps > 28) runs.lengthen(steps);
  runs.shorten(steps);
  std::vector<uint8_t> mask;
  for (size_t i = 0; i < std::max(runs.compute.size(), runs.cache.size()); ++i) {
    if (i < runs.compute.size()) mask.insert(mask.end(), static_cast<size_t>(runs.compute[i]), 1);
    if (i < runs.cache.size()) mask.insert(mask.end(), static_cast<size_t>(runs.cache[i]), 0);
  }
  mask.resize(static_cast<size_t>(steps), 0);
  mask.back() = 1;
  return mask;
}

namespace {

constexpr RuleParameter kMaskParameters[] = {
    {"policy", ParameterKind::kName, "fast", 0, 0, "slow, medium, fast or ultra", /*sets_cost=*/true},
    {"steps", ParameterKind::kSteps, "", 0, 0, "computed steps instead of a policy, as 0-3+7+9", /*sets_cost=*/true},
    {"budget", ParameterKind::kInteger, "0", 0, 1e6, "computed steps, placed as `redline calibrate` found, instead",
     /*sets_cost=*/true},
    {"span", ParameterKind::kName, "middle", 0, 0, "what is skipped: middle, blocks, output or residual"},
    {"blocks", ParameterKind::kInteger, "1", 1, 64, "blocks that run on skipped steps too, for span middle"},
};

Result<RulePlan> plan_mask(const RuleValues& values, const RuleRequest& request) {
  RulePlan plan;
  const std::string span = values.text("span"), policy = values.text("policy");
  if (span == "middle") plan.span = SkippedSpan::kMiddle;
  else if (span == "blocks") plan.span = SkippedSpan::kBlocks;
  else if (span == "output") plan.span = SkippedSpan::kOutput;
  else if (span == "residual") plan.span = SkippedSpan::kResidual;
  else return invalid_argument("unknown span \"{}\"; expected middle, blocks, output or residual", span);
  if (plan.span == SkippedSpan::kMiddle) plan.front_blocks = values.integer("blocks");
  plan.decision = Decision::kAlways;
  plan.budget = request.steps_budget > 0 ? request.steps_budget : values.integer("budget");
  if (!values.steps("steps").empty()) {
    if (plan.budget > 0) return invalid_argument("steps and a budget exclude each other; give one of them");
    plan.guards.schedule.mask_for = [list = values.steps("steps")](int64_t steps) { return mask_of(list, steps); };
    return plan;
  }
  if (plan.budget > 0) {
    plan.guards.schedule.mask_for = [masks = request.masks, budget = plan.budget](int64_t steps) {
      return budget_mask(masks, steps, budget);
    };
    return plan;
  }
  REDLINE_TRY(policy_mask(policy, 28));
  plan.guards.schedule.mask_for = [policy](int64_t steps) {
    Result<std::vector<uint8_t>> made = policy_mask(policy, steps);
    return made.ok() ? *made : std::vector<uint8_t>(static_cast<size_t>(steps), 1);
  };
  return plan;
}

}  // namespace

extern const RuleRow kMaskRule = {
    .name = "mask",
    .summary = "fixed steps are computed",
    .source = "vipshop/cache-dit",
    .parameters = kMaskParameters,
    .takes_budget = true,
    .knob = {.kind = TuningKnob::Kind::kChoice, .parameter = "policy", .choices = kPolicies},
    .plan = plan_mask,
};

}  // namespace redline
