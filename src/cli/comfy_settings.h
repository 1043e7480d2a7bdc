// Settings in the node graph that ComfyUI writes into its images.
#pragma once

#include "cli/read_settings.h"

namespace redline::cli {

/// The settings of the sampler in a graph {"3": {"class_type": "KSampler", "inputs": {...}}, ...} and of the nodes that
/// feed it: KSampler, KSamplerAdvanced and SamplerCustomAdvanced, text encoders, guidance, the empty latent image. What
/// other nodes do is left out by name. No options: there is no such sampler.
ReadSettings parse_comfy_prompt(const std::string& text);

/// Adds the solver for a sampler and its schedule under the names of another program, or leaves them out under `keys`.
void take_sampler(const std::string& sampler, const std::string& schedule, const char* sampler_key,
                  const char* schedule_key, ReadSettings& read);

}  // namespace redline::cli
