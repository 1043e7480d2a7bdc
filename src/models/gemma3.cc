// Gemma 3 (text): norms before and after each block with factors 1 + weight, RMS norm of queries and keys per head,
// scaled embeddings, and windows in five of six layers, with a rope base of their own (Gemma Team 2025,
// arXiv:2503.19786).
#include "models/gemma.h"
#include "models/llama.h"
#include "models/rope_config.h"

namespace redline {
namespace {

Result<LanguageModel> build_gemma3(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  nlohmann::json config = with_rope_theta(rope_of_layer_type(checkpoint.config, "full_attention"), 1e6);
  // The config of the 4B model omits these keys.
  if (!config.contains("num_attention_heads")) config["num_attention_heads"] = 8;
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.head_dim = 256,
                                                               .num_kv_heads = 4,
                                                               .max_positions = 131072,
                                                               .tied = true,
                                                               .activation = Activation::kGeluTanh}));
  constexpr int64_t kLayersOf27B = 62;
  REDLINE_TRY(set_gemma(checkpoint, kLayersOf27B, c));
  ConfigReader r(checkpoint.config);
  const bool bias = r.boolean("attention_bias", false);
  if (r.has("final_logit_softcapping") || r.has("attn_logit_softcapping"))
    r.fail(unsupported("config: Gemma 3 with soft caps of logits"));
  const int64_t full_every = r.integer("sliding_window_pattern", 1, 1000, 6);
  REDLINE_TRY(r.status());
  nlohmann::json windowed = config;
  if (!checkpoint.config.contains("sliding_window")) windowed["sliding_window"] = 4096;
  REDLINE_ASSIGN(c.window, read_alternating_windows(windowed, c.num_layers, full_every));

  nlohmann::json local = rope_of_layer_type(checkpoint.config, "sliding_attention");
  if (local == checkpoint.config) {
    local.erase("rope_scaling");
    local.erase("rope_parameters");
    local["rope_theta"] = r.number("rope_local_base_freq", 1e-6, 1e12, 10000.0);
  }
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(c.window_rope, read_rope_config(local, c.head_dim, c.max_positions));

  auto layer = [&](LayerBuilder& b, Value x) { return gemma_layer(b, x, bias, /*norms_qk=*/true); };
  REDLINE_ASSIGN(Graph graph, build_decoder("gemma3", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

}  // namespace

extern const ModelFamily kGemma3Family = {
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .gguf = {.architecture = "gemma3",
             .top = kLlamaGgufTop,
             .layer = kGgufProjections,
             .more_layer = kGemmaGgufNorms,
             .window_every = 6,
             .window_rope_base = 10000},
    .build = build_gemma3,
};

}  // namespace redline
