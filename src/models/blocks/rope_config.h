// Reads RoPE frequencies from a model's config, with the scalings for longer contexts.
#pragma once

#include <optional>
#include <string>

#include "graph/ops/rope.h"
#include "models/checkpoint/config_reader.h"

namespace redline {

/// Axes of the positions where rope has sections (M-RoPE): time, height and width.
inline constexpr int64_t kRopeAxes = 3;

/// Reads rope_parameters (transformers 5) or rope_theta and rope_scaling (transformers 4) for heads of `head_dim`.
/// Types: default, linear, dynamic (NTK), llama3, longrope, yarn (Peng et al. 2023, arXiv:2309.00071), and "factors",
/// made from a GGUF file's rope_freqs tensor: one divisor per frequency in "factors"; and "mrope", which is default.
/// "mrope_section" gives the numbers of frequencies of time, height and width (Qwen2-VL), one section after the other,
/// or, with "mrope_interleaved", in turn (Qwen3-VL).
/// unsupported: another type; invalid_argument: a missing or impossible number.
Result<RopeTableAttrs> read_rope_config(const nlohmann::json& config, int64_t head_dim, int64_t max_positions);

/// Returns `config` with only the rope settings for layers of one type ("full_attention"): those in rope_parameters
/// (transformers 5), else rope_theta and rope_scaling unchanged.
nlohmann::json rope_of_layer_type(nlohmann::json config, const char* type);

/// Returns `config` with rope_theta, if it has none; for families whose default is not 10000.
nlohmann::json with_rope_theta(nlohmann::json config, double theta);

/// Returns `config` without the magnitudes of its rope scaling (mscale, mscale_all_dim), which GGUF files state as a
/// multiplier.
nlohmann::json without_magnitudes(nlohmann::json config);

/// Returns `config` with partial_rotary_factor, if it has none; for families whose default is not 1.
nlohmann::json with_partial_rotary_factor(nlohmann::json config, double factor);

/// RoPE settings in the form of GGUF's rope.* keys and rope_freqs tensor.
struct GgufRope {
  double base = 10000;              ///< rope.freq_base
  int64_t rotary_dim = 0;           ///< rope.dimension_count
  std::string scaling;              ///< rope.scaling.type: "linear", "yarn"; "" for none
  double factor = 0;                ///< rope.scaling.factor
  int64_t original_context = 0;     ///< rope.scaling.original_context_length, for yarn
  double attention_multiplier = 1;  ///< rope.scaling.yarn_attn_factor: times yarn's default 0.1 ln(factor) + 1
  std::optional<double> beta_fast, beta_slow;  ///< rope.scaling.yarn_beta_*
  std::vector<float> divisors;                 ///< rope_freqs, one for each frequency, for llama3
  std::vector<float> within, beyond;           ///< rope_factors_short and rope_factors_long, for longrope
  std::optional<double> attention_factor;      ///< rope.scaling.attn_factor, for longrope
};
/// Reads the settings for a GGUF file. unsupported: a scaling that these keys cannot express (dynamic; yarn with
/// another "truncate" than readers assume).
Result<GgufRope> read_gguf_rope(const nlohmann::json& config, int64_t head_dim, int64_t max_positions,
                                bool truncates_yarn = true);

/// Returns the longest context that the config allows: max_positions, times the factor of dynamic scaling.
int64_t rope_context(const nlohmann::json& config, int64_t max_positions);

}  // namespace redline
