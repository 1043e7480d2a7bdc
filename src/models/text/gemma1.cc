// Gemma (1): a Llama with norms of factor 1 + weight, scaled embeddings and GELU (Gemma Team 2024, arXiv:2403.08295).
#include "models/text/gemma.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_gemma(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  nlohmann::json config = checkpoint.config;
  // The first releases name "gelu" and mean its approximation by tanh.
  if (config.value("hidden_act", nlohmann::json()) == "gelu") config["hidden_act"] = "gelu_pytorch_tanh";
  REDLINE_ASSIGN(
      DecoderConfig c,
      read_decoder_config(config,
                          {.head_dim = 256, .max_positions = 8192, .tied = true, .activation = Activation::kGeluTanh}));
  config["query_pre_attn_scalar"] = c.head_dim;
  REDLINE_TRY(set_gemma(config, 0, checkpoint.gguf_names != nullptr, c));
  ConfigReader r(config);
  const bool bias = r.boolean("attention_bias", false);
  REDLINE_TRY(r.status());
  return build_llama_decoder("gemma", std::move(c), checkpoint, outputs, {.qkv = bias, .output = bias});
}

}  // namespace

extern const ModelFamily kGemmaFamily = {
    .model_type = "gemma",
    .architecture = "GemmaForCausalLM",
    .gguf = {.architecture = "gemma", .top = kLlamaGgufTop, .layer = kLlamaGgufLayer},
    .build = build_gemma,
};

}  // namespace redline
