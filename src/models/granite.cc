// Granite 3: a Llama with factors of embeddings, attention, residuals and logits (Granite Team 2024).
#include "models/granite.h"

namespace redline {

Status read_granite_factors(const nlohmann::json& config, DecoderConfig& c) {
  ConfigReader r(config);
  const auto factor = [&](const char* key) { return static_cast<float>(r.number(key, 1e-6, 1e6, 1.0)); };
  c.embedding_scale = factor("embedding_multiplier");
  c.attention_scale = factor("attention_multiplier");
  c.residual_scale = factor("residual_multiplier");
  c.logit_scale = 1 / factor("logits_scaling");
  // Only configs made from GGUF files have this key.
  if (!r.boolean("rope_finetuned", true)) c.unrotated.assign(static_cast<size_t>(c.num_layers), true);
  return r.status();
}

void granite_gguf_numbers(const DecoderConfig& c, const ModelFamily::SetNumber& set) {
  set("embedding_scale", double{c.embedding_scale});
  set("residual_scale", double{c.residual_scale});
  set("attention.scale", double{c.attention_scale});
  set("logit_scale", 1 / double{c.logit_scale});
}

namespace {

Result<LanguageModel> build_granite(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config));
  REDLINE_TRY(read_granite_factors(checkpoint.config, c));
  ConfigReader r(checkpoint.config);
  const bool attention_bias = r.boolean("attention_bias", false), mlp_bias = r.boolean("mlp_bias", false);
  REDLINE_TRY(r.status());
  return build_llama_decoder("granite", std::move(c), checkpoint, outputs, {attention_bias, attention_bias, mlp_bias});
}

}  // namespace

extern const ModelFamily kGraniteFamily = {
    .model_type = "granite",
    .architecture = "GraniteForCausalLM",
    .gguf = {.architecture = "granite", .top = kLlamaGgufTop, .layer = kLlamaGgufLayer, .interleaves_rope = true},
    .build = build_granite,
    .gguf_numbers = granite_gguf_numbers,
};

}  // namespace redline
