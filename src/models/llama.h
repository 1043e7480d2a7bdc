// The layers of Llama and their names in GGUF files. Other families that differ only in settings use them.
#pragma once

#include "models/registry.h"

namespace redline {

/// Which linear layers of a Llama layer have a bias.
struct LlamaBiases {
  bool qkv = false, output = false, mlp = false;
};
Result<LanguageModel> build_llama_decoder(std::string name, DecoderConfig c, const Checkpoint& checkpoint,
                                          const DecoderOutputs& outputs, LlamaBiases biases,
                                          const LayerParts& parts = {});

inline constexpr GgufName kLlamaGgufTop[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
inline constexpr GgufName kLlamaGgufLayer[] = {
    {"attn_norm", "input_layernorm"}, {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},   {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},    {"ffn_up", "mlp.up_proj"},           {"ffn_down", "mlp.down_proj"}};
/// Only the projections, for families whose norms have other names.
inline constexpr GgufName kGgufProjections[] = {{"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"},
                                                {"attn_v", "self_attn.v_proj"}, {"attn_output", "self_attn.o_proj"},
                                                {"ffn_gate", "mlp.gate_proj"},  {"ffn_up", "mlp.up_proj"},
                                                {"ffn_down", "mlp.down_proj"}};

}  // namespace redline
