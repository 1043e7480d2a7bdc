// Hunyuan (v1), dense and with experts: RMS norm of queries and keys per head after rope, and a rope base that a factor
// "alpha" raises (Tencent Hunyuan Team 2024, arXiv:2411.02265).
#include <cmath>

#include "models/blocks/moe.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

namespace redline {
namespace {

SelfAttention attention_of_hunyuan(bool bias) {
  return {.qkv_bias = bias,
          .output_bias = bias,
          .norm = QkNorm::kHead,
          .norms_after_rope = true,
          .q_norm = "self_attn.query_layernorm",
          .k_norm = "self_attn.key_layernorm"};
}

/// Returns the config with "alpha" of its rope settings in the base: theta alpha^(d / (d - 2)) for heads of d elements.
nlohmann::json hunyuan_common_config(const nlohmann::json& own) {
  nlohmann::json config = own;
  // The reader of the config reports malformed numbers.
  ConfigReader r(own);
  const int64_t heads = r.integer("num_attention_heads", 1, 1 << 20, 1),
                d = r.integer("head_dim", 1, 1 << 20, r.integer("hidden_size", 1, 1 << 24, 1) / heads);
  if (!r.status().ok()) return config;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = config.find(key);
    if (rope == config.end() || !rope->is_object()) continue;
    const nlohmann::json type = rope->value("rope_type", rope->value("type", nlohmann::json()));
    const auto alpha = rope->find("alpha");
    if (type != "dynamic" || alpha == rope->end() || !alpha->is_number() || *alpha == 0 || d <= 2) continue;
    const nlohmann::json base = rope->value("rope_theta", config.value("rope_theta", nlohmann::json(10000.0)));
    if (!base.is_number()) continue;
    // GGUF files store the base as float32.
    const auto theta = static_cast<float>(
        base.get<double>() * std::pow(alpha->get<double>(), static_cast<double>(d) / static_cast<double>(d - 2)));
    config.erase(key);
    config["rope_theta"] = theta;
  }
  return config;
}

Result<LanguageModel> build_hunyuan_dense(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const nlohmann::json config = hunyuan_common_config(checkpoint.config);
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.max_positions = 2048, .norm_eps_value = 1e-5}));
  ConfigReader r(config);
  const bool bias = r.boolean("attention_bias", false);
  REDLINE_TRY(r.status());
  LayerParts parts;
  parts.mixer = [=](LayerBuilder& b, int64_t, Value x) { return self_attention(b, x, attention_of_hunyuan(bias)); };
  return build_llama_decoder("hunyuan_v1_dense", std::move(c), checkpoint, outputs, {}, parts);
}

/// Returns a number that may be a list with an equal number for each layer.
int64_t read_equal(ConfigReader& r, const nlohmann::json& config, const char* key, int64_t fallback) {
  const auto list = config.find(key);
  if (list == config.end() || !list->is_array()) return r.integer(key, 1, 4096, fallback);
  for (const auto& value : *list)
    if (!value.is_number_integer() || value != list->front()) {
      r.fail(unsupported("config: {} differs by layer", key));
      return fallback;
    }
  const int64_t value = list->empty() ? fallback : list->front().get<int64_t>();
  if (value >= 1 && value <= 4096) return value;
  r.fail(invalid_argument("config: {} is {}, expected a whole number from 1 to 4096", key, value));
  return fallback;
}

MoeConfig read_hunyuan_experts(ConfigReader& r, const nlohmann::json& config, const DecoderConfig& c, bool is_gguf) {
  MoeConfig moe;
  moe.router.num_experts = read_equal(r, config, "num_experts", 1);
  moe.router.experts_per_token = read_equal(r, config, is_gguf ? "num_experts_per_tok" : "moe_topk", 1);
  moe.router.normalizes = true;
  moe.intermediate_size = moe.shared_intermediate_size = c.intermediate_size;
  if (r.status().ok() && moe.router.experts_per_token > moe.router.num_experts)
    r.fail(invalid_argument("config: moe_topk is {}, of {} experts", moe.router.experts_per_token,
                            moe.router.num_experts));
  return moe;
}

Result<LanguageModel> build_hunyuan_moe(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const nlohmann::json config = hunyuan_common_config(checkpoint.config);
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.max_positions = 2048, .norm_eps_value = 1e-5}));
  ConfigReader r(config);
  const MoeConfig moe = read_hunyuan_experts(r, config, c, checkpoint.gguf_names != nullptr);
  const bool bias = r.boolean("attention_bias", false);
  REDLINE_TRY(r.status());
  MoeNames names;
  names.router = "mlp.gate.wg";
  names.shared = "mlp.shared_mlp";
  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t, Value x) { return self_attention(b, x, attention_of_hunyuan(bias)); };
  parts.mlp = [&](LayerBuilder& b, int64_t, Value x) { return moe_block(b, x, moe, names); };
  return build_llama_decoder("hunyuan_v1_moe", std::move(c), checkpoint, outputs, {}, parts);
}

Status set_hunyuan_moe_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  ConfigReader r(checkpoint.config);
  set_moe_keys(read_hunyuan_experts(r, checkpoint.config, c, false), set);
  set.integer("expert_shared_count", 1);
  return r.status();
}

constexpr GgufName kHunyuanGgufNorms[] = {{"attn_q_norm", "self_attn.query_layernorm"},
                                          {"attn_k_norm", "self_attn.key_layernorm"},
                                          {"ffn_gate_inp", "mlp.gate.wg"},
                                          {"ffn_gate_exps", "mlp.experts.gate_proj"},
                                          {"ffn_up_exps", "mlp.experts.up_proj"},
                                          {"ffn_down_exps", "mlp.experts.down_proj"},
                                          {"ffn_gate_shexp", "mlp.shared_mlp.gate_proj"},
                                          {"ffn_up_shexp", "mlp.shared_mlp.up_proj"},
                                          {"ffn_down_shexp", "mlp.shared_mlp.down_proj"}};

}  // namespace

extern const ModelFamily kHunyuanDenseFamily = {
    .model_type = "hunyuan_v1_dense",
    .architecture = "HunYuanDenseV1ForCausalLM",
    .gguf = {.architecture = "hunyuan-dense",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .more_layer = kHunyuanGgufNorms},
    .build = build_hunyuan_dense,
    .common_config = hunyuan_common_config,
};

extern const ModelFamily kHunyuanMoeFamily = {
    .model_type = "hunyuan_v1_moe",
    .architecture = "HunYuanMoEV1ForCausalLM",
    .gguf = {.architecture = "hunyuan-moe",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .more_layer = kHunyuanGgufNorms,
             .has_experts = true,
             .read_keys = read_moe_keys},
    .build = build_hunyuan_moe,
    .common_config = hunyuan_common_config,
    .gguf_parts = moe_gguf_parts,
    .gguf_keys = set_hunyuan_moe_keys,
};

}  // namespace redline
