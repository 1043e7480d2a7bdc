// Gemma 3 (text): norms before and after each block with factors 1 + weight, RMS norm of queries and keys per head,
// scaled embeddings, and windows in five of six layers, with a rope base of their own (Gemma Team 2025,
// arXiv:2503.19786).
#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/gemma.h"
#include "models/text/llama.h"

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
  REDLINE_TRY(set_gemma(checkpoint.config, kLayersOf27B, checkpoint.gguf_names != nullptr, c));
  ConfigReader r(checkpoint.config);
  const bool bias = r.boolean("attention_bias", false);
  // transformers reads this key for Gemma 3 and does not use it.
  if (r.has("attn_logit_softcapping")) r.fail(unsupported("config: attn_logit_softcapping of Gemma 3"));
  c.logit_soft_cap = read_soft_cap(r, checkpoint, "final_logit_softcapping", 0);
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

void read_gemma3_keys(GgufKeyReader& keys) {
  read_gemma_cap_keys(keys);
  keys.number("rope.freq_base_swa", "rope_local_base_freq");
  if (const GgufValue* pattern = keys.find("attention.sliding_window_pattern"); pattern && pattern->as_int())
    keys.integer("attention.sliding_window_pattern", "sliding_window_pattern");
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
             .window_rope_base = 10000,
             .read_keys = read_gemma3_keys},
    .build = build_gemma3,
    .gguf_numbers = gemma_gguf_caps,
};

}  // namespace redline
