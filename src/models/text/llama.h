// The layers of Llama and their names in GGUF files. Other families that differ only in settings use them.
#pragma once

#include "models/registry.h"

namespace redline {

/// The linear layers of a Llama layer that have a bias.
struct LlamaBiases {
  bool qkv = false, output = false, mlp = false;
};
Result<LanguageModel> build_llama_decoder(std::string name, DecoderConfig c, const Checkpoint& checkpoint,
                                          const DecoderOutputs& outputs, LlamaBiases biases,
                                          const LayerParts& parts = {});

/// The elements that a norm of queries and keys normalizes together.
enum class QkNorm : uint8_t { kNone, kHead, kAllHeads };
/// Settings of self-attention with separate projections. Names are those after the layer's prefix.
struct SelfAttention {
  bool qkv_bias = false, output_bias = false;
  QkNorm norm = QkNorm::kNone;
  bool norms_after_rope = false;
  const char *q = "self_attn.q_proj", *k = "self_attn.k_proj", *v = "self_attn.v_proj", *output = "self_attn.o_proj";
  const char *q_norm = "self_attn.q_norm", *k_norm = "self_attn.k_norm";
  /// A norm of queries or keys before rope in place of `norm`; empty: there is none.
  std::function<Value(LayerBuilder& b, Value heads, bool is_query)> own_norm = {};
  const char* sinks = nullptr;  ///< a vector with a sink logit for each head; nullptr: there is none
};
/// Adds a layer norm of each head with `weight` and `bias` of all heads, one after the other.
Value head_layer_norm(LayerBuilder& b, Value heads, Value weight, Value bias);
/// Adds self-attention, including the output projection, of the normed input `h`.
Value self_attention(LayerBuilder& b, Value h, const SelfAttention& a);

inline constexpr GgufName kGgufHeadNorms[] = {{"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"}};
inline constexpr GgufName kLlamaGgufTop[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
inline constexpr GgufName kLlamaGgufLayer[] = {
    {"attn_norm", "input_layernorm"}, {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},   {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},    {"ffn_up", "mlp.up_proj"},           {"ffn_down", "mlp.down_proj"}};
/// Layers of Llama with norms of the heads of queries and keys.
inline constexpr GgufName kHeadNormGgufLayer[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};
/// Only the projections, for families whose norms have other names.
inline constexpr GgufName kGgufProjections[] = {{"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"},
                                                {"attn_v", "self_attn.v_proj"}, {"attn_output", "self_attn.o_proj"},
                                                {"ffn_gate", "mlp.gate_proj"},  {"ffn_up", "mlp.up_proj"},
                                                {"ffn_down", "mlp.down_proj"}};

}  // namespace redline
