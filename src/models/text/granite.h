// Shared parts of the Granite families (IBM 2024, 2025): factors, and mixtures of experts with a shared expert.
#pragma once

#include "models/blocks/moe.h"
#include "models/text/llama.h"

namespace redline {

/// Read the factors of embeddings, scores, residuals and logits from config.json and from GGUF files, and write them
/// to GGUF files.
Status read_granite_factors(const nlohmann::json& config, DecoderConfig& c);
void read_granite_keys(GgufKeyReader& keys);
void granite_gguf_numbers(const DecoderConfig& c, const ModelFamily::SetNumber& set);

/// Returns the number of experts; 0: the model has none.
int64_t granite_num_experts(ConfigReader& r);
/// Reads the settings of the experts; nullopt: the model has none.
Result<std::optional<MoeConfig>> read_granite_moe(const Checkpoint& checkpoint);
/// Adds the block of experts, from a folder or a GGUF file.
Value granite_moe_block(LayerBuilder& b, Value x, const MoeConfig& moe);
/// Sets the metadata of the experts for a GGUF file.
void set_granite_moe_keys(const MoeConfig& moe, const GgufKeys& set);
/// Implements ModelFamily::gguf_parts for block_sparse_moe and shared_mlp. nullopt: the tensor belongs to neither.
std::optional<std::vector<GgufForm>> granite_moe_gguf_parts(const Checkpoint& checkpoint, bool has_experts,
                                                            std::string_view name);

}  // namespace redline
