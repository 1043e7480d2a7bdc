// none: every step is computed.
#include "diffusion/step_cache/rule.h"

namespace redline {
namespace {

Result<RulePlan> plan_none(const RuleValues&, const RuleRequest&) { return RulePlan(); }

}  // namespace

extern const RuleRow kNoneRule = {
    .name = "none",
    .summary = "every step is computed",
    .source = "-",
    .plan = plan_none,
};

}  // namespace redline
