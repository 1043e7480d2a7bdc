// What the generations of Gemma share.
#pragma once

#include <functional>

#include "models/registry.h"

namespace redline {

/// Sets norms with factors 1 + weight, scaled embeddings and the scale of attention, which is that of
/// "query_pre_attn_scalar". GGUF files do not state it: their scale is that of head_dim, but for the 27B model, known
/// by its number of layers.
Status set_gemma(const Checkpoint& checkpoint, int64_t layers_of_27b, DecoderConfig& c);

/// A layer with norms before and after `attention` (of the normed input, up to the output projection) and the gated
/// MLP.
Value gemma_layer(LayerBuilder& b, Value x, const std::function<Value(Value)>& attention);
/// The same with the attention of Gemma 2 and 3. `bias`: of the projections; `norms_qk`: RMS norms of queries and keys
/// per head.
Value gemma_layer(LayerBuilder& b, Value x, bool bias, bool norms_qk);

inline constexpr GgufName kGemmaGgufNorms[] = {
    {"attn_norm", "input_layernorm"},          {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"}, {"post_ffw_norm", "post_feedforward_layernorm"},
    {"attn_q_norm", "self_attn.q_norm"},       {"attn_k_norm", "self_attn.k_norm"}};

}  // namespace redline
