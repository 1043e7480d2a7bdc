// Parses any bytes as the step cache of an image request, "RULE:parameter=value,...". The first byte adds a quality, a
// budget of steps or nothing.
#include "diffusion/step_cache/rule.h"
#include "fuzz_input.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  RuleRequest request;
  request.rule = fuzz_text(data + 1, size - 1);
  if (data[0] % 3 == 1) request.quality = static_cast<double>(data[0]) / 255;
  if (data[0] % 3 == 2) request.steps_budget = data[0];
  const auto plan = plan_rule(request);
  if (!plan.ok()) {
    require(!plan.status().message().empty());
    return 0;
  }
  (void)reads_of(*plan);
  require(plan->forecaster() != nullptr);
  if (plan->statistic)
    for (const int64_t steps : {1, 4, 50}) require(plan->statistic(steps) != nullptr);
  // The description of a plan must be a valid rule, unless the request has a budget.
  RuleRequest again;
  again.rule = plan->description;
  require(request.steps_budget > 0 || plan_rule(again).ok());
  return 0;
}
