// Qwen3-MoE: a Qwen3 with a mixture of experts in most layers (Yang et al. 2025, arXiv:2505.09388).
#include "models/blocks/moe.h"
#include "models/blocks/rope_config.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_qwen3_experts(const char* name, const nlohmann::json& config, const Checkpoint& checkpoint,
                                          const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.num_kv_heads = 4, .max_positions = 32768}));
  ConfigReader r(config);
  // GGUF files do not state whether weights are normalized; llama.cpp does it in all of them.
  const MoeConfig moe = read_moe_config(r, checkpoint.gguf_names != nullptr);
  const bool bias = r.boolean("attention_bias", false);
  if (r.boolean("use_sliding_window", false) && !(config.contains("sliding_window") && !r.has("sliding_window")))
    c.window.assign(c.window.size(), r.integer("sliding_window", 1, int64_t{1} << 40, 4096));
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(const std::vector<bool> sparse, read_sparse_layers(config, c.num_layers));
  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t, Value h) {
    return self_attention(b, h, {.qkv_bias = bias, .output_bias = bias, .norm = QkNorm::kHead});
  };
  parts.mlp = [&](LayerBuilder& b, int64_t layer, Value x) {
    return sparse[static_cast<size_t>(layer)] ? moe_block(b, x, moe) : b.gated_mlp(x, false);
  };
  return build_llama_decoder(name, c, checkpoint, outputs, {}, parts);
}

Result<LanguageModel> build_qwen3_moe(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  return build_qwen3_experts("qwen3_moe", checkpoint.config, checkpoint, outputs);
}

/// The text part of Qwen3-VL with experts, whose weights are always normalized. Without images the three axes of its
/// rope are one.
nlohmann::json qwen3_vl_moe_common_config(const nlohmann::json& own) {
  nlohmann::json config =
      with_defaults(with_rope_theta(own, 5e5),
                    {{"num_key_value_heads", 16}, {"num_experts_per_tok", 4}, {"moe_intermediate_size", 1408}});
  if (!config.contains("num_experts") && !config.contains("num_local_experts")) config["num_experts"] = 60;
  config["norm_topk_prob"] = true;
  return config;
}

Result<LanguageModel> build_qwen3_vl_moe(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  return build_qwen3_experts("qwen3_vl_moe",
                             checkpoint.gguf_names ? checkpoint.config : qwen3_vl_moe_common_config(checkpoint.config),
                             checkpoint, outputs);
}

Status set_qwen3_moe_keys(const nlohmann::json& config, const Checkpoint& checkpoint, const DecoderConfig& c,
                          const GgufKeys& set) {
  ConfigReader r(config);
  const MoeConfig moe = read_moe_config(r, false);
  if (!moe.router.normalizes) return unsupported("GGUF has no key for norm_topk_prob of qwen3_moe");
  set_moe_keys(moe, set);
  return expect_all_sparse(checkpoint, c, "qwen3_moe");
}

}  // namespace

extern const ModelFamily kQwen3MoeFamily = {
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .gguf = {.architecture = "qwen3moe",
             .top = kLlamaGgufTop,
             .layer = kHeadNormGgufLayer,
             .more_layer = kGgufExperts,
             .has_experts = true,
             .read_keys = read_moe_keys},
    .build = build_qwen3_moe,
    .gguf_parts = moe_gguf_parts,
    .gguf_keys = [](const Checkpoint& checkpoint, const DecoderConfig& c,
                    const GgufKeys& set) { return set_qwen3_moe_keys(checkpoint.config, checkpoint, c, set); },
};

extern const ModelFamily kQwen3VlMoeFamily = {
    .model_type = "qwen3_vl_moe_text",
    .architecture = "Qwen3VLMoeForConditionalGeneration",
    .gguf = {.architecture = "qwen3vlmoe",
             .top = kLlamaGgufTop,
             .layer = kHeadNormGgufLayer,
             .more_layer = kGgufExperts,
             .has_experts = true,
             .export_architecture = "qwen3moe",
             .read_keys = read_moe_keys},
    .build = build_qwen3_vl_moe,
    .common_config = qwen3_vl_moe_common_config,
    .gguf_parts = moe_gguf_parts,
    .gguf_keys =
        [](const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
          return set_qwen3_moe_keys(qwen3_vl_moe_common_config(checkpoint.config), checkpoint, c, set);
        },
};

}  // namespace redline
