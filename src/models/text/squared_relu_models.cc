// Decoders whose MLP has no gate and the activation relu(x)^2: Arcee's AFM (a Llama otherwise), Nemotron and Minitron
// (layer norms with factor 1 + weight, rope on half of each head; Parmar et al. 2024, arXiv:2402.16819), and Jais 2
// (layer norms and biases).
#include "models/blocks/rope_config.h"
#include "models/text/llama.h"

namespace redline {
namespace {

/// Reads the common settings. Their key hidden_act must name the activation, which is not one of enum Activation.
Result<DecoderConfig> read_squared_relu(nlohmann::json config, const DecoderDefaults& defaults) {
  ConfigReader r(config);
  const std::string activation = r.text("hidden_act", "relu2");
  REDLINE_TRY(r.status());
  if (activation != "relu2") return unsupported("config: hidden_act \"{}\"; this family uses relu2", activation);
  config.erase("hidden_act");
  return read_decoder_config(config, defaults);
}

Result<LanguageModel> build_squared_relu(const char* name, DecoderConfig c, const nlohmann::json& config,
                                         const Checkpoint& checkpoint, const DecoderOutputs& outputs, bool bias) {
  ConfigReader r(config);
  const bool attention_bias = r.boolean("attention_bias", bias), mlp_bias = r.boolean("mlp_bias", bias);
  REDLINE_TRY(r.status());
  LayerParts parts;
  parts.mlp = [=](LayerBuilder& b, int64_t, Value x) {
    return b.squared_relu_mlp(x, "mlp.up_proj", "mlp.down_proj", mlp_bias);
  };
  return build_llama_decoder(name, std::move(c), checkpoint, outputs, {.qkv = attention_bias, .output = attention_bias},
                             parts);
}

Result<LanguageModel> build_arcee(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c,
                 read_squared_relu(checkpoint.config, {.max_positions = 4096, .norm_eps_value = 1e-5}));
  return build_squared_relu("arcee", std::move(c), checkpoint.config, checkpoint, outputs, false);
}

Result<LanguageModel> build_nemotron(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const nlohmann::json config =
      checkpoint.gguf_names ? checkpoint.config : with_partial_rotary_factor(checkpoint.config, 0.5);
  REDLINE_ASSIGN(DecoderConfig c,
                 read_squared_relu(config, {.max_positions = 4096,
                                            .norm_eps = checkpoint.gguf_names ? "layer_norm_eps" : "norm_eps",
                                            .norm_eps_value = 1e-5}));
  c.norm = {.layer = true, .bias = true, .plus_one = true};
  return build_squared_relu("nemotron", std::move(c), config, checkpoint, outputs, false);
}

Result<LanguageModel> build_jais2(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c,
                 read_squared_relu(checkpoint.config,
                                   {.max_positions = 8192, .norm_eps = "layer_norm_eps", .norm_eps_value = 1e-5}));
  c.norm = {.layer = true, .bias = true};
  return build_squared_relu("jais2", std::move(c), checkpoint.config, checkpoint, outputs, true);
}

constexpr GgufName kSquaredReluGgufLayer[] = {
    {"attn_norm", "input_layernorm"}, {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},   {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.up_proj"},        {"ffn_down", "mlp.down_proj"}};

}  // namespace

extern const ModelFamily kArceeFamily = {
    .model_type = "arcee",
    .architecture = "ArceeForCausalLM",
    .gguf = {.architecture = "arcee", .top = kLlamaGgufTop, .layer = kSquaredReluGgufLayer, .interleaves_rope = true},
    .build = build_arcee,
};

extern const ModelFamily kNemotronFamily = {
    .model_type = "nemotron",
    .architecture = "NemotronForCausalLM",
    .gguf = {.architecture = "nemotron", .top = kLlamaGgufTop, .layer = kSquaredReluGgufLayer},
    .build = build_nemotron,
};

extern const ModelFamily kJais2Family = {
    .model_type = "jais2",
    .architecture = "Jais2ForCausalLM",
    .gguf = {.architecture = "jais2", .top = kLlamaGgufTop, .layer = kSquaredReluGgufLayer},
    .build = build_jais2,
};

}  // namespace redline
