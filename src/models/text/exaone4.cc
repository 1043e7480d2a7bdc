// EXAONE 4: norms after each block instead of before it, RMS norm of queries and keys per head, and, in models with
// windows, windows and rope in three of four layers and neither in the others (LG AI Research 2025, arXiv:2507.11407).
#include <algorithm>

#include "graph/ops/add.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_exaone4(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c,
                 read_decoder_config(checkpoint.config, {.max_positions = 2048, .norm_eps_value = 1e-5}));
  ConfigReader r(checkpoint.config);
  const bool has_windows =
      checkpoint.gguf_names || checkpoint.config.contains("sliding_window") ? r.has("sliding_window") : true;
  if (has_windows) {
    const int64_t window = r.integer("sliding_window", 1, int64_t{1} << 40, 4096);
    const bool in_words = r.has("sliding_window_pattern") && checkpoint.config["sliding_window_pattern"].is_string();
    const int64_t pattern = in_words ? 4 : r.integer("sliding_window_pattern", 1, 1000, 4);
    if (in_words && !r.has("layer_types"))  // for example "LLLG"
      r.fail(unsupported("config: sliding_window_pattern in words without layer_types"));
    REDLINE_TRY(r.status());
    REDLINE_ASSIGN(c.window, windows_of_layers(checkpoint.config, c.num_layers, window,
                                               [&](int64_t layer) { return (layer + 1) % pattern != 0; }));
    for (const int64_t own : c.window) c.unrotated.push_back(own == 0);
  }
  REDLINE_TRY(r.status());
  auto layer = [&](LayerBuilder& b, Value x) {
    const Value out = self_attention(b, x, {.norm = QkNorm::kHead});
    x = add(b.graph(), x, b.norm(out, "post_attention_layernorm", c.hidden_size));
    return add(b.graph(), x, b.norm(b.gated_mlp(x, false), "post_feedforward_layernorm", c.hidden_size));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("exaone4", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

constexpr GgufName kExaone4GgufNorms[] = {{"post_attention_norm", "post_attention_layernorm"},
                                          {"post_ffw_norm", "post_feedforward_layernorm"},
                                          {"attn_q_norm", "self_attn.q_norm"},
                                          {"attn_k_norm", "self_attn.k_norm"}};

}  // namespace

extern const ModelFamily kExaone4Family = {
    .model_type = "exaone4",
    .architecture = "Exaone4ForCausalLM",
    .gguf = {.architecture = "exaone4",
             .top = kLlamaGgufTop,
             .layer = kGgufProjections,
             .more_layer = kExaone4GgufNorms,
             .window_every = 4},
    .build = build_exaone4,
};

}  // namespace redline
