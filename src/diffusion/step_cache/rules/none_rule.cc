// none: every step is computed.
#include "diffusion/step_cache/rule.h"

namespace redline {

RuleInfo none_rule() {
  return {"none", "every step is computed",
          "-",    {},
          0,      [](const RuleValues&, const RuleRequest&) -> Result<RulePlan> { return RulePlan(); }};
}

}  // namespace redline
