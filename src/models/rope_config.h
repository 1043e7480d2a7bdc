// RoPE frequencies from a model's config, with the scalings for longer contexts.
#pragma once

#include <optional>
#include <string>

#include "graph/ops/rope.h"
#include "models/config_reader.h"

namespace redline {

/// Reads rope_parameters (transformers 5) or rope_theta and rope_scaling (transformers 4) for heads of `head_dim`.
/// Types: default, linear, dynamic (NTK), llama3, longrope, yarn (Peng et al. 2023, arXiv:2309.00071), and "factors",
/// which a GGUF file's rope_freqs tensor becomes: one divisor per frequency in "factors".
/// unsupported: another type; invalid_argument: a missing or impossible number.
Result<RopeTableAttrs> read_rope_config(const nlohmann::json& config, int64_t head_dim, int64_t max_positions);

/// `config` with the rope settings of the layers of one type ("full_attention") as the only ones: those in
/// rope_parameters (transformers 5), or else rope_theta and rope_scaling as they are.
nlohmann::json rope_of_layer_type(nlohmann::json config, const char* type);

/// `config` with rope_theta, if it states none: of families whose default is not 10000.
nlohmann::json with_rope_theta(nlohmann::json config, double theta);

/// The same settings as GGUF's rope.* keys and rope_freqs tensor hold them.
struct GgufRope {
  double base = 10000;              ///< rope.freq_base
  int64_t rotary_dim = 0;           ///< rope.dimension_count
  std::string scaling;              ///< rope.scaling.type: "linear", "yarn"; "" for none
  double factor = 0;                ///< rope.scaling.factor
  int64_t original_context = 0;     ///< rope.scaling.original_context_length, of yarn
  double attention_multiplier = 1;  ///< rope.scaling.yarn_attn_factor: times yarn's default 0.1 ln(factor) + 1
  std::optional<double> beta_fast, beta_slow;  ///< rope.scaling.yarn_beta_*
  std::vector<float> divisors;                 ///< rope_freqs, one for each frequency: of llama3
  std::vector<float> within, beyond;           ///< rope_factors_short and rope_factors_long: of longrope
  std::optional<double> attention_factor;      ///< rope.scaling.attn_factor: of longrope
};
/// unsupported: a scaling that these keys cannot express (dynamic; yarn with another "truncate" than readers take for
/// granted).
Result<GgufRope> read_gguf_rope(const nlohmann::json& config, int64_t head_dim, int64_t max_positions,
                                bool truncates_yarn = true);

/// The longest context that the config allows: max_positions, times the factor of dynamic scaling.
int64_t rope_context(const nlohmann::json& config, int64_t max_positions);

}  // namespace redline
