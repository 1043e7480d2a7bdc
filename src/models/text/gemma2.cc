// Gemma 2: norms before and after each block with factors 1 + weight, scaled embeddings, a window in every second
// layer, and soft caps of attention scores and logits (Gemma Team 2024, arXiv:2408.00118).
#include "graph/ops/add.h"
#include "models/text/gemma.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_gemma2_layers(const char* name, const Checkpoint& checkpoint, const DecoderOutputs& outputs,
                                          const std::function<Value(LayerBuilder&, Value, bool bias)>& add_layer) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config, {.head_dim = 256,
                                                                          .num_kv_heads = 4,
                                                                          .max_positions = 8192,
                                                                          .tied = true,
                                                                          .activation = Activation::kGeluTanh}));
  constexpr int64_t kLayersOf27B = 46;
  REDLINE_TRY(set_gemma(checkpoint.config, kLayersOf27B, checkpoint.gguf_names != nullptr, c));
  ConfigReader r(checkpoint.config);
  c.attention_soft_cap = read_soft_cap(r, checkpoint, "attn_logit_softcapping", 50);
  c.logit_soft_cap = read_soft_cap(r, checkpoint, "final_logit_softcapping", 30);
  const bool bias = r.boolean("attention_bias", false);
  REDLINE_TRY(r.status());
  nlohmann::json windowed = checkpoint.config;
  if (!windowed.contains("sliding_window")) windowed["sliding_window"] = 4096;
  REDLINE_ASSIGN(c.window, read_alternating_windows(windowed, c.num_layers, 2));

  auto layer = [&](LayerBuilder& b, Value x) { return add_layer(b, x, bias); };
  REDLINE_ASSIGN(Graph graph, build_decoder(name, c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

Result<LanguageModel> build_gemma2(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  return build_gemma2_layers("gemma2", checkpoint, outputs, [](LayerBuilder& b, Value x, bool bias) {
    return gemma_layer(b, x, bias, /*norms_qk=*/false);
  });
}

/// VaultGemma: the layers of Gemma 2 without the norms after the blocks.
Result<LanguageModel> build_vaultgemma(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  return build_gemma2_layers("vaultgemma", checkpoint, outputs, [](LayerBuilder& b, Value x, bool bias) {
    const int64_t width = b.config().hidden_size;
    const SelfAttention attention = {.qkv_bias = bias, .output_bias = bias};
    x = add(b.graph(), x, self_attention(b, b.norm(x, "input_layernorm", width), attention));
    return add(b.graph(), x, b.gated_mlp(b.norm(x, "pre_feedforward_layernorm", width), false));
  });
}

}  // namespace

extern const ModelFamily kGemma2Family = {
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .gguf = {.architecture = "gemma2",
             .top = kLlamaGgufTop,
             .layer = kGgufProjections,
             .more_layer = kGemmaGgufNorms,
             .window_every = 2,
             .read_keys = read_gemma_cap_keys},
    .build = build_gemma2,
    .gguf_numbers = gemma_gguf_caps,
};

extern const ModelFamily kVaultGemmaFamily = {
    .model_type = "vaultgemma",
    .architecture = "VaultGemmaForCausalLM",
    .gguf = {},
    .build = build_vaultgemma,
};

}  // namespace redline
