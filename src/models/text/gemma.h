// Shared parts of the generations of Gemma.
#pragma once

#include <functional>

#include "models/registry.h"

namespace redline {

/// Sets norms with factors 1 + weight, scaled embeddings, and the attention scale, which follows from
/// "query_pre_attn_scalar". GGUF files do not store that number: for them the scale follows from head_dim, except for
/// the 27B model, which is recognized by its number of layers.
Status set_gemma(const nlohmann::json& config, int64_t layers_of_27b, bool is_gguf, DecoderConfig& c);

/// Returns the soft cap under `key`; 0: none. null means none; a missing key means `usual`.
float read_soft_cap(ConfigReader& r, const Checkpoint& checkpoint, const char* key, double usual);
/// Read the soft caps from a GGUF file and write them to one.
void read_gemma_cap_keys(GgufKeyReader& keys);
void gemma_gguf_caps(const DecoderConfig& c, const ModelFamily::SetNumber& set);

/// Adds a layer with norms before and after `attention` (which gets the normed input and includes the output
/// projection) and before and after the gated MLP.
Value gemma_layer(LayerBuilder& b, Value x, const std::function<Value(Value)>& attention);
/// Adds a layer with the attention of Gemma 2 and 3. `bias`: the projections have a bias; `norms_qk`: queries and keys
/// have an RMS norm per head.
Value gemma_layer(LayerBuilder& b, Value x, bool bias, bool norms_qk);

inline constexpr GgufName kGemmaGgufNorms[] = {
    {"attn_norm", "input_layernorm"},          {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"}, {"post_ffw_norm", "post_feedforward_layernorm"},
    {"attn_q_norm", "self_attn.q_norm"},       {"attn_k_norm", "self_attn.k_norm"}};

}  // namespace redline
