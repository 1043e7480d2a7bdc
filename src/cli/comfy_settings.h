// Reads settings from the node graph that ComfyUI writes into its images.
#pragma once

#include "cli/read_settings.h"

namespace redline::cli {

/// Reads the settings of the sampler in a graph {"3": {"class_type": "KSampler", "inputs": {...}}, ...} and of the
/// nodes that feed it: KSampler, KSamplerAdvanced and SamplerCustomAdvanced, text encoders, guidance, the empty latent
/// image. Other nodes are listed as left out. Returns no options if there is no such sampler.
ReadSettings parse_comfy_prompt(const std::string& text);

/// Adds the solver for a sampler and its schedule, named as in another program. Unknown ones are listed as left out
/// under the two keys.
void take_sampler(const std::string& sampler, const std::string& schedule, const char* sampler_key,
                  const char* schedule_key, ReadSettings& read);

}  // namespace redline::cli
