// What layers with a recurrent state share: the short convolution, and the weights of a scan.
#pragma once

#include "graph/ops/gated_scan.h"
#include "models/registry.h"

namespace redline {

/// A recurrent state of the layer.
Value recurrent_state(LayerBuilder& b, const std::string& name, int64_t elements);

/// The convolution `name`.conv1d over `taps` tokens of each channel of x, and silu.
Value short_convolution(LayerBuilder& b, Value x, const std::string& name, int64_t channels, int64_t taps,
                        bool has_bias);

/// -exp(value), rounded once.
float decay_of_log(float value);
/// `name`.A_log, of which the decay is -exp(A_log); GGUF files have the decay itself, `name`.A.
Value take_decay(LayerBuilder& b, const std::string& name, int64_t heads);
/// `name`.dt_bias, in GGUF files `name`.dt.bias.
Value take_step_bias(LayerBuilder& b, const std::string& name, int64_t heads);

/// The mixer of Mamba-2, a state-space model with a scalar decay per head (Dao and Gu 2024, arXiv:2405.21060).
struct Mamba2Mixer {
  GatedScanAttrs scan;
  int64_t taps = 4;
  bool has_bias = false, has_conv_bias = true;

  int64_t inner_size() const { return scan.num_heads * scan.value_dim; }
};
/// time_step_limit of config.json, [least, most] of the time step; null, which Python's Infinity becomes, means no
/// limit.
Status read_step_limits(const nlohmann::json& config, GatedScanAttrs& scan);
/// invalid_argument: heads and groups do not fit, or the heads are not `inner` elements together.
Status check_mamba2_mixer(const Mamba2Mixer& m, int64_t inner);
/// The mixer of a GGUF file, from the keys that gguf_checkpoint.cc gives its settings.
Result<Mamba2Mixer> read_gguf_mamba2_mixer(const nlohmann::json& config);
/// How GGUF files have a tensor of the mixer `module`.
GgufForm mamba2_gguf_form(const Checkpoint& checkpoint, std::string_view name, std::string_view module, int64_t groups);
/// unsupported: a setting that GGUF files do not state.
Status set_mamba2_mixer_keys(const Mamba2Mixer& m, const GgufKeys& set);
Value mamba2_mixer(LayerBuilder& b, Value x, const std::string& name, const Mamba2Mixer& m);

}  // namespace redline
