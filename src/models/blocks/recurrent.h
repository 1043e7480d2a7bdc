// Shared parts of layers with a recurrent state: the short convolution, and the weights of a scan.
#pragma once

#include "graph/ops/gated_scan.h"
#include "models/registry.h"

namespace redline {

/// Declares a recurrent state of the layer.
Value recurrent_state(LayerBuilder& b, const std::string& name, int64_t elements);

/// Adds the convolution `name`.`module` over `taps` tokens of each channel of x, followed by silu if `has_silu`.
Value short_convolution(LayerBuilder& b, Value x, const std::string& name, int64_t channels, int64_t taps,
                        bool has_bias, const char* module = "conv1d", bool has_silu = true);

/// Returns -exp(value), rounded once.
float decay_of_log(float value);
/// Returns the decay of each head, -exp(A_log) with the tensor `name`.A_log. GGUF files store the decay itself,
/// `name`.A.
Value take_decay(LayerBuilder& b, const std::string& name, int64_t heads);
/// Returns the tensor `name`.dt_bias; in GGUF files it is `name`.dt.bias.
Value take_step_bias(LayerBuilder& b, const std::string& name, int64_t heads);

/// The mixer of Mamba-2, a state-space model with a scalar decay per head (Dao and Gu 2024, arXiv:2405.21060).
struct Mamba2Mixer {
  GatedScanAttrs scan;
  int64_t taps = 4;
  bool has_bias = false, has_conv_bias = true;

  int64_t inner_size() const { return scan.num_heads * scan.value_dim; }
};
/// Reads time_step_limit of config.json, the minimum and maximum of the time step. null, which stands for Python's
/// Infinity, means no limit.
Status read_step_limits(const nlohmann::json& config, GatedScanAttrs& scan);
/// Checks the sizes. invalid_argument: the heads are not a multiple of the groups, or together do not have `inner`
/// elements.
Status check_mamba2_mixer(const Mamba2Mixer& m, int64_t inner);
/// Reads the keys of recurrent layers in a GGUF file.
void read_ssm_keys(GgufKeyReader& keys);
/// Reads the mixer of a GGUF file from the config keys that read_ssm_keys() makes.
Result<Mamba2Mixer> read_gguf_mamba2_mixer(const nlohmann::json& config);
/// Returns the form of a tensor of the mixer `module` in GGUF files.
GgufForm mamba2_gguf_form(const Checkpoint& checkpoint, std::string_view name, std::string_view module, int64_t groups);
/// Sets the keys of the mixer for a GGUF file. unsupported: a setting that GGUF cannot express.
Status set_mamba2_mixer_keys(const Mamba2Mixer& m, const GgufKeys& set);
Value mamba2_mixer(LayerBuilder& b, Value x, const std::string& name, const Mamba2Mixer& m);

}  // namespace redline
