// What the families of Granite share: factors, and mixtures of experts with an expert of all tokens (IBM 2024, 2025).
#pragma once

#include "models/llama.h"
#include "models/moe.h"

namespace redline {

/// Factors of embeddings, scores, residuals and logits, and their keys in GGUF files.
Status read_granite_factors(const nlohmann::json& config, DecoderConfig& c);
void granite_gguf_numbers(const DecoderConfig& c, const ModelFamily::SetNumber& set);

/// 0: the model has none.
int64_t granite_num_experts(ConfigReader& r);
/// Settings of the experts; nullopt: the model has none.
Result<std::optional<MoeConfig>> read_granite_moe(const Checkpoint& checkpoint);
/// The block of a folder or of a GGUF file.
Value granite_moe_block(LayerBuilder& b, Value x, const MoeConfig& moe);
/// Metadata of the experts in GGUF files.
void set_granite_moe_keys(const MoeConfig& moe, const GgufKeys& set);
/// ModelFamily::gguf_parts of block_sparse_moe and shared_mlp. nullopt: the tensor belongs to neither.
std::optional<std::vector<GgufForm>> granite_moe_gguf_parts(const Checkpoint& checkpoint, bool has_experts,
                                                            std::string_view name);

}  // namespace redline
