// OLMo 2: norms after each block instead of before it, and RMS norm of queries and keys over all heads (OLMo Team 2025,
// arXiv:2501.00656). OLMo 3 adds windows in three of four layers, without the scaling of rope that the others have.
#include "graph/ops/add.h"
#include "models/blocks/rope_config.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_with(const char* name, DecoderConfig c, const Checkpoint& checkpoint,
                                 const DecoderOutputs& outputs) {
  ConfigReader r(checkpoint.config);
  const bool bias = r.boolean("attention_bias", false);
  REDLINE_TRY(r.status());
  auto layer = [&](LayerBuilder& b, Value x) {
    const Value out = self_attention(b, x, {.qkv_bias = bias, .output_bias = bias, .norm = QkNorm::kAllHeads});
    x = add(b.graph(), x, b.norm(out, "post_attention_layernorm", c.hidden_size));
    return add(b.graph(), x, b.norm(b.gated_mlp(x, false), "post_feedforward_layernorm", c.hidden_size));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder(name, c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

constexpr double kOlmo3Theta = 5e5;

Status set_windows(const Checkpoint& checkpoint, const nlohmann::json& config, DecoderConfig& c) {
  constexpr int64_t kFullEvery = 4;
  REDLINE_ASSIGN(c.window, read_alternating_windows(config, c.num_layers, kFullEvery));
  nlohmann::json local = rope_of_layer_type(checkpoint.config, "sliding_attention");
  const bool is_shared = local == checkpoint.config;
  local = with_rope_theta(std::move(local), kOlmo3Theta);
  if (is_shared) {
    local.erase("rope_scaling");
    if (const auto own = local.find("rope_parameters"); own != local.end() && own->is_object())
      local["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", own->value("rope_theta", 10000.0)}};
  }
  REDLINE_ASSIGN(c.window_rope, read_rope_config(local, c.head_dim, c.max_positions));
  return {};
}

// GGUF files of OLMo 3 have this architecture too, and a window.
Result<LanguageModel> build_olmo2(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config, {.norm_eps_value = 1e-5}));
  if (checkpoint.sliding_window) REDLINE_TRY(set_windows(checkpoint, checkpoint.config, c));
  return build_with("olmo2", std::move(c), checkpoint, outputs);
}

Result<LanguageModel> build_olmo3(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  nlohmann::json config = with_rope_theta(rope_of_layer_type(checkpoint.config, "full_attention"), kOlmo3Theta);
  if (!config.contains("sliding_window")) config["sliding_window"] = 4096;
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.norm_eps_value = 1e-5}));
  REDLINE_TRY(set_windows(checkpoint, config, c));
  return build_with("olmo3", std::move(c), checkpoint, outputs);
}

constexpr GgufName kOlmo2GgufNorms[] = {{"post_attention_norm", "post_attention_layernorm"},
                                        {"post_ffw_norm", "post_feedforward_layernorm"},
                                        {"attn_q_norm", "self_attn.q_norm"},
                                        {"attn_k_norm", "self_attn.k_norm"}};

}  // namespace

extern const ModelFamily kOlmo2Family = {
    .model_type = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .gguf = {.architecture = "olmo2", .top = kLlamaGgufTop, .layer = kGgufProjections, .more_layer = kOlmo2GgufNorms},
    .build = build_olmo2,
};

extern const ModelFamily kOlmo3Family = {
    .model_type = "olmo3",
    .architecture = "Olmo3ForCausalLM",
    .gguf = {.architecture = "olmo3",
             .top = kLlamaGgufTop,
             .layer = kGgufProjections,
             .more_layer = kOlmo2GgufNorms,
             .window_every = 4,
             .export_architecture = "olmo2"},
    .build = build_olmo3,
};

}  // namespace redline
