// The layers of Qwen3-Next and Qwen3.5: most are gated delta networks, every few layers one is attention with an output
// gate.
#pragma once

#include "models/blocks/recurrent.h"
#include "models/registry.h"

namespace redline {

/// Settings of a model's mixers.
struct GatedDeltaConfig {
  GatedScanAttrs scan;
  int64_t taps = 4;
  std::vector<bool> is_linear;  ///< per layer; false: attention
  bool attention_bias = false;  ///< the projections of attention have biases
};

/// Reads the decoder's settings: norms with factor weight + 1, rope on a quarter of each head unless config.json says
/// otherwise.
Result<DecoderConfig> read_gated_delta_decoder(const Checkpoint& checkpoint);
Result<GatedDeltaConfig> read_gated_delta_config(const Checkpoint& checkpoint, int64_t num_layers);

/// Adds the mixer of the layer: a gated delta network (Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464), or
/// attention whose result is multiplied by the sigmoid of a gate, which q_proj computes with the queries of each head.
Value gated_delta_mixer(LayerBuilder& b, Value x, const GatedDeltaConfig& c);

/// Counts the tensors of the head that predicts further tokens as used; the head is not run.
void ignore_prediction_heads(WeightReader& w, const Checkpoint& checkpoint);

/// Reads the keys of these layers in a GGUF file.
void read_gated_delta_keys(GgufKeyReader& keys);
/// Implement ModelFamily::gguf_parts and gguf_keys for these layers. `alternates_groups`: GgufNames::alternates_groups.
std::vector<GgufForm> gated_delta_gguf_parts(const Checkpoint& checkpoint, const DecoderConfig& config,
                                             std::string_view name, bool alternates_groups);
Status set_gated_delta_keys(const Checkpoint& checkpoint, const DecoderConfig& config, const GgufKeys& set);

/// GGUF's names of the tensors of these layers, except experts.
inline constexpr GgufName kGatedDeltaGgufLayer[] = {{"attn_norm", "input_layernorm"},
                                                    {"post_attention_norm", "post_attention_layernorm"},
                                                    {"attn_q", "self_attn.q_proj"},
                                                    {"attn_k", "self_attn.k_proj"},
                                                    {"attn_v", "self_attn.v_proj"},
                                                    {"attn_output", "self_attn.o_proj"},
                                                    {"attn_q_norm", "self_attn.q_norm"},
                                                    {"attn_k_norm", "self_attn.k_norm"},
                                                    {"attn_qkv", "linear_attn.in_proj_qkv"},
                                                    {"attn_gate", "linear_attn.in_proj_z"},
                                                    {"ssm_in", "linear_attn.in_proj_qkvz"},
                                                    {"ssm_ba", "linear_attn.in_proj_ba"},
                                                    {"ssm_beta", "linear_attn.in_proj_b"},
                                                    {"ssm_alpha", "linear_attn.in_proj_a"},
                                                    {"ssm_conv1d", "linear_attn.conv1d"},
                                                    {"ssm_dt", "linear_attn.dt"},
                                                    {"ssm_a", "linear_attn.A"},
                                                    {"ssm_norm", "linear_attn.norm"},
                                                    {"ssm_out", "linear_attn.out_proj"},
                                                    {"ffn_gate", "mlp.gate_proj"},
                                                    {"ffn_up", "mlp.up_proj"},
                                                    {"ffn_down", "mlp.down_proj"}};

}  // namespace redline
