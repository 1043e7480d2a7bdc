#include "machine/generation_speed.h"

#include <algorithm>

namespace redline {

GenerationSpeed speed_of(const TextEngine& engine, const GenerateResult& result, const MachinePeaks* peaks,
                         bool exact_f32) {
  GenerationSpeed speed;
  speed.prefill.tokens = result.prompt_tokens;
  speed.prefill.seconds = result.prefill_ms / 1e3;
  speed.decode.tokens = result.decode_tokens;
  speed.decode.seconds = result.decode_ms / 1e3;
  if (peaks == nullptr) return speed;
  const Roofline roofline(*peaks, exact_f32);
  const EngineProfile& profile = profile_of(engine);
  if (speed.prefill.seconds > 0) speed.prefill.bound = roofline.bound_of(profile.op_costs(result.prompt_tokens, 0));
  if (speed.decode.seconds > 0) {
    // The cache grows evenly, so the middle step is the average one. A step gives one token and the accepted drafts.
    Bound bound = roofline.bound_of(profile.op_costs(1, result.prompt_tokens + result.decode_tokens / 2));
    bound.seconds *= static_cast<double>(std::max<int64_t>(1, result.decode_tokens - result.accepted_tokens));
    speed.decode.bound = bound;
  }
  return speed;
}

int64_t decode_step_bytes(const TextEngine& engine) {
  return static_cast<int64_t>(profile_of(engine).step_cost(1, 0).bytes);
}

}  // namespace redline
