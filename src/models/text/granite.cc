// Granite 3: a Llama with factors of embeddings, attention, residuals and logits (Granite Team 2024).
#include "models/text/granite.h"

#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

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

void read_granite_keys(GgufKeyReader& keys) {
  keys.number("attention.scale", "attention_multiplier");
  keys.number("embedding_scale", "embedding_multiplier");
  keys.number("residual_scale", "residual_multiplier");
  keys.number("logit_scale", "logits_scaling");
  keys.boolean("rope.scaling.finetuned", "rope_finetuned");
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

/// Sets the rope of each layer: "layer_rope_theta" has the base, 0 for a layer without rope. Layers with a window may have
/// another base than the others.
Status set_layer_rope(const nlohmann::json& config, DecoderConfig& c) {
  const auto list = config.find("layer_rope_theta");
  if (list == config.end() || list->is_null()) return {};
  if (!list->is_array() || list->size() != c.window.size())
    return invalid_argument("config: layer_rope_theta must list {} layers", c.num_layers);
  std::optional<double> base_of[2];  // of layers without and with a window
  c.unrotated.assign(c.window.size(), false);
  for (size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_number()) return invalid_argument("config: layer_rope_theta[{}] is not a number", i);
    const double base = (*list)[i].get<double>();
    c.unrotated[i] = base == 0;
    if (base == 0) continue;
    std::optional<double>& known = base_of[c.window[i] > 0 ? 1 : 0];
    if (known && *known != base)
      return unsupported("config: layer_rope_theta {} and {} in layers of one kind", *known, base);
    known = base;
  }
  const auto rope_with = [&](double base) {
    nlohmann::json own = config;
    if (own.contains("rope_parameters") && own["rope_parameters"].is_object())
      own["rope_parameters"]["rope_theta"] = base;
    own["rope_theta"] = base;
    return read_rope_config(own, c.head_dim, c.max_positions);
  };
  if (base_of[0]) {
    REDLINE_ASSIGN(c.rope, rope_with(*base_of[0]));
  }
  if (base_of[1]) {
    REDLINE_ASSIGN(c.window_rope, rope_with(*base_of[1]));
  }
  return {};
}

/// Granite with windows in three of four layers and a sink logit for each head (IBM 2026).
Result<LanguageModel> build_granite_swa(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(
      DecoderConfig c,
      read_decoder_config(checkpoint.config, {.num_kv_heads = 4, .max_positions = 8192, .norm_eps_value = 1e-5}));
  REDLINE_TRY(read_granite_factors(checkpoint.config, c));
  ConfigReader r(checkpoint.config);
  const bool attention_bias = r.boolean("attention_bias", false), mlp_bias = r.boolean("mlp_bias", false);
  const bool is_null = checkpoint.config.contains("sliding_window") && !r.has("sliding_window");
  const int64_t window = is_null ? 0 : r.integer("sliding_window", 1, int64_t{1} << 40, 128);
  REDLINE_TRY(r.status());
  constexpr int64_t kFullEvery = 4;
  REDLINE_ASSIGN(c.window, windows_of_layers(checkpoint.config, c.num_layers, window,
                                             [](int64_t layer) { return layer % kFullEvery != 0; }));
  REDLINE_TRY(set_layer_rope(checkpoint.config, c));
  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t, Value x) {
    return self_attention(b, x,
                          {.qkv_bias = attention_bias, .output_bias = attention_bias, .sinks = "self_attn.sinks"});
  };
  return build_llama_decoder("granite_swa", c, checkpoint, outputs, {.mlp = mlp_bias}, parts);
}

}  // namespace

extern const ModelFamily kGraniteSwaFamily = {
    .model_type = "granite_swa",
    .architecture = "GraniteSWAForCausalLM",
    .gguf = {},
    .build = build_granite_swa,
};

extern const ModelFamily kGraniteFamily = {
    .model_type = "granite",
    .architecture = "GraniteForCausalLM",
    .gguf = {.architecture = "granite",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .interleaves_rope = true,
             .read_keys = read_granite_keys},
    .build = build_granite,
    .gguf_numbers = granite_gguf_numbers,
};

}  // namespace redline
