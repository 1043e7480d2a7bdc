// Gemma 2: norms before and after each block with factors 1 + weight, scaled embeddings, a window in every second
// layer, and soft caps of attention scores and logits (Gemma Team 2024, arXiv:2408.00118).
#include "models/gemma.h"
#include "models/llama.h"

namespace redline {
namespace {

/// Returns the cap under `key`. null means none, as does a missing key in config.json.
float soft_cap_of(ConfigReader& r, const Checkpoint& checkpoint, const char* key, double usual) {
  if (checkpoint.config.contains(key) && !r.has(key)) return 0;
  return static_cast<float>(r.number(key, 1e-3, 1e6, usual));
}

Result<LanguageModel> build_gemma2(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config, {.head_dim = 256,
                                                                          .num_kv_heads = 4,
                                                                          .max_positions = 8192,
                                                                          .tied = true,
                                                                          .activation = Activation::kGeluTanh}));
  constexpr int64_t kLayersOf27B = 46;
  REDLINE_TRY(set_gemma(checkpoint, kLayersOf27B, c));
  ConfigReader r(checkpoint.config);
  c.attention_soft_cap = soft_cap_of(r, checkpoint, "attn_logit_softcapping", 50);
  c.logit_soft_cap = soft_cap_of(r, checkpoint, "final_logit_softcapping", 30);
  const bool bias = r.boolean("attention_bias", false);
  REDLINE_TRY(r.status());
  nlohmann::json windowed = checkpoint.config;
  if (!windowed.contains("sliding_window")) windowed["sliding_window"] = 4096;
  REDLINE_ASSIGN(c.window, read_alternating_windows(windowed, c.num_layers, 2));

  auto layer = [&](LayerBuilder& b, Value x) { return gemma_layer(b, x, bias, /*norms_qk=*/false); };
  REDLINE_ASSIGN(Graph graph, build_decoder("gemma2", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

void gemma2_gguf_numbers(const DecoderConfig& c, const ModelFamily::SetNumber& set) {
  if (c.attention_soft_cap > 0) set("attn_logit_softcapping", double{c.attention_soft_cap});
  if (c.logit_soft_cap > 0) set("final_logit_softcapping", double{c.logit_soft_cap});
}

}  // namespace

extern const ModelFamily kGemma2Family = {
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .gguf = {.architecture = "gemma2",
             .top = kLlamaGgufTop,
             .layer = kGgufProjections,
             .more_layer = kGemmaGgufNorms,
             .window_every = 2},
    .build = build_gemma2,
    .gguf_numbers = gemma2_gguf_numbers,
};

}  // namespace redline
