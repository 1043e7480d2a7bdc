// Mixtures of experts with the routing of DeepSeek-V3 and attention with separate projections: GLM-4.5 to 4.7
// (GLM-4.5 Team 2025, arXiv:2508.06471), dots.llm1 (rednote-hilab 2025, arXiv:2506.05767) and Solar Open.
#include "models/blocks/moe.h"
#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

namespace redline {
namespace {

/// Settings in which the families differ, for a folder.
struct BalancedModel {
  const char* name;
  DecoderConfig config;
  MoeConfig moe;
  SelfAttention attention;
  int64_t dense_layers = 0;
};

Result<LanguageModel> build_balanced(BalancedModel m, const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  MoeNames names;
  names.shared = "mlp.shared_experts";
  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t layer, Value x) {
    if (layer == 0) ignore_layers_beyond(b, checkpoint);
    SelfAttention a = m.attention;
    // GGUF files do not state whether there are norms.
    if (checkpoint.gguf_names)
      a.norm = b.weights().has(b.scope() + a.q_norm + ".weight") ? QkNorm::kHead : QkNorm::kNone;
    return self_attention(b, x, a);
  };
  parts.mlp = [&](LayerBuilder& b, int64_t layer, Value x) {
    return layer < m.dense_layers ? b.gated_mlp(x, false) : moe_block(b, x, m.moe, names);
  };
  return build_llama_decoder(m.name, m.config, checkpoint, outputs, {}, parts);
}

// Returns config.json with transformers' defaults for GLM-4.5. GGUF files state these numbers.
nlohmann::json glm4_moe_config(const Checkpoint& checkpoint) {
  if (checkpoint.gguf_names) return checkpoint.config;
  return with_defaults(with_partial_rotary_factor(checkpoint.config, 0.5), {{"num_key_value_heads", 8},
                                                                            {"rms_norm_eps", 1e-5},
                                                                            {"moe_intermediate_size", 1408},
                                                                            {"num_experts_per_tok", 8},
                                                                            {"n_shared_experts", 1},
                                                                            {"n_routed_experts", 128},
                                                                            {"first_k_dense_replace", 1}});
}

Result<LanguageModel> build_glm4_moe(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const nlohmann::json config = glm4_moe_config(checkpoint);
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.max_positions = 131072}));
  ConfigReader r(config);
  const MoeConfig moe = read_balanced_moe_config(r, true);
  const bool bias = r.boolean("attention_bias", false), norms = r.boolean("use_qk_norm", false);
  const int64_t dense = r.integer("first_k_dense_replace", 0, c.num_layers, 1);
  REDLINE_TRY(r.status());
  return build_balanced(
      {"glm4_moe", std::move(c), moe, {.qkv_bias = bias, .norm = norms ? QkNorm::kHead : QkNorm::kNone}, dense},
      checkpoint, outputs);
}

Result<LanguageModel> build_dots1(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const nlohmann::json config =
      checkpoint.gguf_names ? checkpoint.config : with_defaults(checkpoint.config, {{"sliding_window", 4096}});
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.max_positions = 2048}));
  ConfigReader r(config);
  const MoeConfig moe = read_balanced_moe_config(r, false);
  const bool bias = r.boolean("attention_bias", false);
  const int64_t dense = r.integer("first_k_dense_replace", 0, c.num_layers, 0);
  if (!checkpoint.gguf_names && r.has("sliding_window")) {
    const int64_t window = r.integer("sliding_window", 1, int64_t{1} << 40);
    const int64_t first = r.integer("max_window_layers", 0, int64_t{1} << 40, 62);
    REDLINE_TRY(r.status());
    REDLINE_ASSIGN(c.window, windows_of_layers(checkpoint.config, c.num_layers, window,
                                               [&](int64_t layer) { return layer >= first; }));
  }
  REDLINE_TRY(r.status());
  return build_balanced(
      {"dots1", std::move(c), moe, {.qkv_bias = bias, .output_bias = bias, .norm = QkNorm::kHead}, dense}, checkpoint,
      outputs);
}

Result<LanguageModel> build_solar_open(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  nlohmann::json config = with_defaults(with_rope_theta(checkpoint.config, 1e6), {{"num_key_value_heads", 8},
                                                                                  {"rms_norm_eps", 1e-5},
                                                                                  {"moe_intermediate_size", 1280},
                                                                                  {"num_experts_per_tok", 8},
                                                                                  {"n_shared_experts", 1},
                                                                                  {"n_routed_experts", 128}});
  // All layers have experts.
  config["intermediate_size"] = config["moe_intermediate_size"];
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.head_dim = 128, .max_positions = 131072}));
  ConfigReader r(config);
  const MoeConfig moe = read_balanced_moe_config(r, true);
  const bool bias = r.boolean("attention_bias", false);
  REDLINE_TRY(r.status());
  return build_balanced({"solar_open", std::move(c), moe, {.qkv_bias = bias, .output_bias = bias}, 0}, checkpoint,
                        outputs);
}

/// Reads the keys of a file of GLM. Its number of layers includes the layers that predict further tokens, which are not
/// run.
void read_glm4_moe_keys(GgufKeyReader& keys) {
  read_moe_keys(keys);
  keys.integer("nextn_predict_layers", "num_nextn_predict_layers");
  nlohmann::json& config = keys.config();
  if (!keys.status().ok() || !config.contains("num_nextn_predict_layers") || !config.contains("num_hidden_layers"))
    return;
  const int64_t layers = config["num_hidden_layers"].get<int64_t>(),
                beyond = config["num_nextn_predict_layers"].get<int64_t>();
  if (beyond >= layers)
    keys.fail(invalid_argument("{}: {} is {} of {} layers", keys.file().path(), keys.full_name("nextn_predict_layers"),
                               beyond, layers));
  else config["num_hidden_layers"] = layers - beyond;
}

Status set_glm4_moe_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  const nlohmann::json config = glm4_moe_config(checkpoint);
  ConfigReader r(config);
  set_balanced_moe_keys(read_balanced_moe_config(r, true), r.integer("first_k_dense_replace", 0, c.num_layers, 1), set);
  return r.status();
}

Status set_dots1_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  ConfigReader r(checkpoint.config);
  set_balanced_moe_keys(read_balanced_moe_config(r, false), r.integer("first_k_dense_replace", 0, c.num_layers, 0),
                        set);
  return r.status();
}

std::vector<GgufForm> balanced_gguf_parts(const Checkpoint& checkpoint, const DecoderConfig& c, std::string_view name) {
  if (name.starts_with(fmt::format("{}{}.", c.names.layers, c.num_layers))) return {};
  return moe_gguf_parts(checkpoint, c, name);
}

constexpr GgufName kGlm4MoeGgufLayer[] = {{"attn_norm", "input_layernorm"},
                                          {"attn_q", "self_attn.q_proj"},
                                          {"attn_k", "self_attn.k_proj"},
                                          {"attn_v", "self_attn.v_proj"},
                                          {"attn_output", "self_attn.o_proj"},
                                          {"attn_q_norm", "self_attn.q_norm"},
                                          {"attn_k_norm", "self_attn.k_norm"},
                                          {"post_attention_norm", "post_attention_layernorm"},
                                          {"ffn_gate", "mlp.gate_proj"},
                                          {"ffn_up", "mlp.up_proj"},
                                          {"ffn_down", "mlp.down_proj"},
                                          {"nextn.eh_proj", "eh_proj"},
                                          {"nextn.enorm", "enorm"},
                                          {"nextn.hnorm", "hnorm"},
                                          {"nextn.embed_tokens", "embed_tokens"},
                                          {"nextn.shared_head_head", "shared_head.head"},
                                          {"nextn.shared_head_norm", "shared_head.norm"}};

}  // namespace

extern const ModelFamily kGlm4MoeFamily = {
    .model_type = "glm4_moe",
    .architecture = "Glm4MoeForCausalLM",
    .gguf = {.architecture = "glm4moe",
             .top = kLlamaGgufTop,
             .layer = kGlm4MoeGgufLayer,
             .more_layer = kGgufBalancedExperts,
             .has_experts = true,
             .read_keys = read_glm4_moe_keys},
    .build = build_glm4_moe,
    .gguf_parts = balanced_gguf_parts,
    .gguf_keys = set_glm4_moe_keys,
};

extern const ModelFamily kDots1Family = {
    .model_type = "dots1",
    .architecture = "Dots1ForCausalLM",
    .gguf = {.architecture = "dots1",
             .top = kLlamaGgufTop,
             .layer = kHeadNormGgufLayer,
             .more_layer = kGgufBalancedExperts,
             .has_experts = true,
             .read_keys = read_moe_keys},
    .build = build_dots1,
    .gguf_parts = balanced_gguf_parts,
    .gguf_keys = set_dots1_keys,
};

extern const ModelFamily kSolarOpenFamily = {
    .model_type = "solar_open",
    .architecture = "SolarOpenForCausalLM",
    .gguf = {},
    .build = build_solar_open,
};

}  // namespace redline
