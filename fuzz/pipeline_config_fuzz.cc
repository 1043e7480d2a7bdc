// Reads any JSON as a settings file of an image pipeline: step_cache.json, the prompt words of redline.json, or
// scheduler_config.json, whose schedule is computed for a few steps (the first byte chooses).
#include <cmath>

#include "diffusion/calibration_file.h"
#include "diffusion/prompt_words.h"
#include "diffusion/solver.h"
#include "fuzz_input.h"
#include "text/json_infinities.h"
#include "text/json_reader.h"

using namespace redline;

namespace {

void try_solver(const Json& config) {
  const auto solver = Solver::make(config);
  if (!solver.ok()) return require(!solver.status().message().empty());
  for (const int steps : {1, 3}) {
    StepPlan plan;
    plan.steps = steps;
    if (!(*solver)->set_steps(plan).ok()) continue;
    require((*solver)->num_steps() > 0 && (*solver)->timesteps().size() == static_cast<size_t>((*solver)->num_steps()));
    for (const float timestep : (*solver)->timesteps()) require(std::isfinite(timestep));
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto json = parse_json(without_infinities(fuzz_text(data + 1, size - 1)), "x.json");
  if (!json.ok()) return 0;
  if (data[0] % 3 == 0) {
    const auto masks = parse_calibration(*json);
    if (!masks.ok()) return require(!masks.status().message().empty()), 0;
    for (const CalibratedMask& mask : *masks)
      for (const int64_t step : mask.computed) require(step >= 0 && step < mask.steps);
    (void)require_mask(*masks, 28, 7);
  } else if (data[0] % 3 == 1) {
    const auto words = PromptWords::parse(*json);
    require(words.ok() || !words.status().message().empty());
  } else if (json->is_object()) {
    try_solver(*json);
  }
  return 0;
}
