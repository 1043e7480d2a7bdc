// RoPE frequencies from a model's config, with the scalings for longer contexts.
#pragma once

#include "graph/ops/rope.h"
#include "models/config_reader.h"

namespace redline {

/// Reads rope_parameters (transformers 5) or rope_theta and rope_scaling (transformers 4) for heads of `head_dim`.
/// Types: default, linear, dynamic (NTK), llama3, yarn (Peng et al. 2023, arXiv:2309.00071), and "factors", which a
/// GGUF file's rope_freqs tensor becomes: one divisor per frequency in "factors".
/// unsupported: another type; invalid_argument: a missing or impossible number.
Result<RopeTableAttrs> read_rope_config(const nlohmann::json& config, int64_t head_dim, int64_t max_positions);

/// The longest context that the config allows: max_positions, times the factor of dynamic scaling.
int64_t rope_context(const nlohmann::json& config, int64_t max_positions);

}  // namespace redline
