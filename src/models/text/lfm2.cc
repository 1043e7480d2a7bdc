// LFM2, dense and with experts: most layers are short convolutions between two products with gates, the others
// attention with RMS norm of queries and keys per head (Liquid AI 2025, arXiv:2511.23404).
#include <cmath>

#include "graph/ops/add.h"
#include "graph/ops/gated_add.h"
#include "graph/ops/scale.h"
#include "models/blocks/moe.h"
#include "models/blocks/recurrent.h"
#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

namespace redline {
namespace {

constexpr double kLfm2Theta = 1e6;
constexpr int64_t kMaxLfm2Width = int64_t{1} << 24;

struct Lfm2Config {
  std::vector<bool> is_conv;  ///< per layer; false: attention
  int64_t taps = 3;
  bool has_bias = false;              ///< the convolutions and their projections have biases
  std::optional<MoeConfig> moe = {};  ///< experts of the layers from dense_layers on
  int64_t dense_layers = 0;
};

/// Returns config.json with the common keys.
nlohmann::json lfm2_common_config(const nlohmann::json& own) {
  nlohmann::json config = with_rope_theta(own, kLfm2Theta);
  // "tie_embedding" is not read: the tensors decide (set_tied_embeddings in checkpoint.cc).
  if (const auto at = own.find("block_ff_dim"); at != own.end()) config["intermediate_size"] = *at;
  return config;
}

/// Returns the width of the MLP, which follows from intermediate_size by the rule of Llama 1.
int64_t adjusted_width(ConfigReader& r, const nlohmann::json& config, int64_t width) {
  if (!r.boolean("block_auto_adjust_ff_dim", true)) return width;
  width = 2 * width / 3;
  if (config.contains("block_ffn_dim_multiplier") && !r.has("block_ffn_dim_multiplier")) return width;  // null
  width = static_cast<int64_t>(r.number("block_ffn_dim_multiplier", 1e-3, 1e3, 1.0) * static_cast<double>(width));
  const int64_t multiple = r.integer("block_multiple_of", 1, 1 << 20, 256);
  return (width + multiple - 1) / multiple * multiple;
}

Result<std::vector<bool>> read_conv_layers(const Checkpoint& checkpoint, const nlohmann::json& config,
                                           int64_t num_layers) {
  std::vector<bool> is_conv(static_cast<size_t>(num_layers), false);
  if (checkpoint.gguf_names) {
    for (size_t i = 0; i < is_conv.size(); ++i)
      is_conv[i] = checkpoint.tensors.count(fmt::format("model.layers.{}.conv.in_proj.weight", i)) > 0;
    return is_conv;
  }
  const auto types = config.find("layer_types"), full = config.find("full_attn_idxs");
  if (types != config.end() && !types->is_null()) {
    if (!types->is_array() || types->size() != is_conv.size())
      return invalid_argument("config: layer_types must list {} layers", num_layers);
    for (size_t i = 0; i < is_conv.size(); ++i) {
      is_conv[i] = (*types)[i] == "conv";
      if (!is_conv[i] && (*types)[i] != "full_attention")
        return unsupported("config: layer_types[{}] is {}; Redline runs full_attention and conv", i,
                           (*types)[i].dump());
    }
  } else if (full != config.end() && full->is_array()) {
    is_conv.assign(is_conv.size(), true);
    for (const auto& layer : *full)
      if (layer.is_number_integer() && layer.get<int64_t>() >= 0 && layer.get<int64_t>() < num_layers)
        is_conv[static_cast<size_t>(layer.get<int64_t>())] = false;
  }
  return is_conv;
}

Result<Lfm2Config> read_lfm2(const Checkpoint& checkpoint, const nlohmann::json& config, int64_t num_layers,
                             bool has_experts) {
  const bool is_gguf = checkpoint.gguf_names != nullptr;
  ConfigReader r(config);
  Lfm2Config l;
  l.taps = r.integer("conv_L_cache", 1, 64, 3);
  l.has_bias = r.boolean("conv_bias", false);
  if (has_experts) {
    MoeConfig moe = read_moe_config(r, true);
    moe.intermediate_size = r.integer("moe_intermediate_size", 1, kMaxLfm2Width, 1792);
    moe.router.score = RouterScore::kSigmoid;
    moe.has_correction_bias = r.boolean("use_expert_bias", true);
    l.moe = moe;
    l.dense_layers = r.integer(is_gguf ? "first_k_dense_replace" : "num_dense_layers", 0, num_layers, 2);
  }
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(l.is_conv, read_conv_layers(checkpoint, config, num_layers));
  return l;
}

/// Adds a * b, elementwise. The sum 0 a + b a is exact.
Value product(LayerBuilder& b, Value x, Value y) {
  return gated_add(b.graph(), scale(b.graph(), x, {0}), y, x, 0, Dim(1));
}

Value conv_mixer(LayerBuilder& b, Value x, const Lfm2Config& l) {
  const int64_t size = b.config().hidden_size;
  const auto part = [&](const char* name, int64_t index) {
    return b.project_part(x, "conv.in_proj", name, 3 * size, index * size, size, size, l.has_bias);
  };
  const Value gate = part("conv.gate", 0), out_gate = part("conv.out_gate", 1), values = part("conv.values", 2);
  b.graph().set_scope(b.scope() + "conv.product");
  const Value gated = product(b, gate, values);
  const Value y = short_convolution(b, gated, "conv", size, l.taps, l.has_bias, "conv", false);
  b.graph().set_scope(b.scope() + "conv.out_product");
  return b.project(product(b, out_gate, y), "conv.out_proj", size, size, l.has_bias);
}

Result<LanguageModel> build_lfm2(const char* name, bool has_experts, const Checkpoint& checkpoint,
                                 const DecoderOutputs& outputs) {
  nlohmann::json config = checkpoint.gguf_names ? checkpoint.config : lfm2_common_config(checkpoint.config);
  if (!checkpoint.gguf_names && !has_experts) {
    ConfigReader r(config);
    config["intermediate_size"] = adjusted_width(r, config, r.integer("intermediate_size", 1, kMaxLfm2Width, 12288));
    REDLINE_TRY(r.status());
  }
  REDLINE_ASSIGN(DecoderConfig c,
                 read_decoder_config(config, {.num_kv_heads = 8,
                                              .max_positions = 128000,
                                              .tied = true,
                                              .norm_eps = checkpoint.gguf_names ? "rms_norm_eps" : "norm_eps",
                                              .norm_eps_value = 1e-5}));
  c.names.norm = "model.embedding_norm";
  REDLINE_ASSIGN(const Lfm2Config l, read_lfm2(checkpoint, config, c.num_layers, has_experts));
  const SelfAttention attention = {.norm = QkNorm::kHead,
                                   .output = "self_attn.out_proj",
                                   .q_norm = "self_attn.q_layernorm",
                                   .k_norm = "self_attn.k_layernorm"};
  const MoeNames names = {.router = "feed_forward.gate",
                          .correction = "feed_forward.expert",
                          .experts = "feed_forward.experts",
                          .gate = "w1",
                          .up = "w3",
                          .down = "w2"};
  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "operator_norm", c.hidden_size);
    const bool is_conv = l.is_conv[static_cast<size_t>(b.layer())];
    x = add(b.graph(), x, is_conv ? conv_mixer(b, h, l) : self_attention(b, h, attention));
    const Value inner = b.norm(x, "ffn_norm", c.hidden_size);
    if (l.moe && b.layer() >= l.dense_layers) return add(b.graph(), x, moe_block(b, inner, *l.moe, names));
    return add(b.graph(), x, b.gated_mlp(inner, {"feed_forward.w1", "feed_forward.w3", "feed_forward.w2"}));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder(name, c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

void read_lfm2_keys(GgufKeyReader& keys) {
  read_moe_keys(keys);
  keys.integer("shortconv.l_cache", "conv_L_cache");
}

Status set_lfm2_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set, bool has_experts) {
  REDLINE_ASSIGN(const Lfm2Config l,
                 read_lfm2(checkpoint, lfm2_common_config(checkpoint.config), c.num_layers, has_experts));
  if (l.has_bias) return unsupported("GGUF has no place for the biases of LFM2's convolutions");
  std::vector<int32_t> kv_heads;
  for (const bool is_conv : l.is_conv) kv_heads.push_back(is_conv ? 0 : static_cast<int32_t>(c.num_kv_heads));
  set.integers("attention.head_count_kv", kv_heads);
  set.integer("shortconv.l_cache", l.taps);
  if (!l.moe) return {};
  if (!l.moe->router.normalizes || l.moe->router.scale != 1 || !l.moe->has_correction_bias)
    return unsupported("GGUF has no key for the routing of lfm2_moe other than its usual one");
  constexpr int64_t kGgufSigmoid = 2;
  set.integer("expert_count", l.moe->router.num_experts);
  set.integer("expert_used_count", l.moe->router.experts_per_token);
  set.integer("expert_feed_forward_length", l.moe->intermediate_size);
  set.integer("leading_dense_block_count", l.dense_layers);
  set.integer("expert_gating_func", kGgufSigmoid);
  return {};
}

GgufForm lfm2_gguf_form(const Checkpoint& checkpoint, const DecoderConfig&, std::string_view name) {
  GgufForm form;
  const std::vector<int64_t>& shape = checkpoint.tensors.at(std::string(name)).view.shape;
  if (name.ends_with(".conv.conv.weight")) form.shape = {shape.front(), shape.back()};
  if (name.ends_with(".expert_bias")) form.name = std::string(name.substr(0, name.size() - 5)) + ".bias";
  return form;
}

constexpr GgufName kLfm2GgufTop[] = {
    {"token_embd", "model.embed_tokens"}, {"token_embd_norm", "model.embedding_norm"}, {"output", "lm_head"}};
constexpr GgufName kLfm2GgufLayer[] = {{"attn_norm", "operator_norm"},
                                       {"attn_q", "self_attn.q_proj"},
                                       {"attn_k", "self_attn.k_proj"},
                                       {"attn_v", "self_attn.v_proj"},
                                       {"attn_output", "self_attn.out_proj"},
                                       {"attn_q_norm", "self_attn.q_layernorm"},
                                       {"attn_k_norm", "self_attn.k_layernorm"},
                                       {"shortconv.conv", "conv.conv"},
                                       {"shortconv.in_proj", "conv.in_proj"},
                                       {"shortconv.out_proj", "conv.out_proj"},
                                       {"ffn_norm", "ffn_norm"},
                                       {"ffn_gate", "feed_forward.w1"},
                                       {"ffn_up", "feed_forward.w3"},
                                       {"ffn_down", "feed_forward.w2"},
                                       {"ffn_gate_inp", "feed_forward.gate"},
                                       {"exp_probs_b", "feed_forward.expert"},
                                       {"ffn_gate_exps", "feed_forward.experts.w1"},
                                       {"ffn_up_exps", "feed_forward.experts.w3"},
                                       {"ffn_down_exps", "feed_forward.experts.w2"}};

}  // namespace

extern const ModelFamily kLfm2Family = {
    .model_type = "lfm2",
    .architecture = "Lfm2ForCausalLM",
    .gguf = {.architecture = "lfm2",
             .top = kLfm2GgufTop,
             .layer = kLfm2GgufLayer,
             .is_recurrent = true,
             .read_keys = read_lfm2_keys},
    .build = [](const Checkpoint& checkpoint,
                const DecoderOutputs& outputs) { return build_lfm2("lfm2", false, checkpoint, outputs); },
    .gguf_form = lfm2_gguf_form,
    .common_config = lfm2_common_config,
    .gguf_keys = [](const Checkpoint& checkpoint, const DecoderConfig& c,
                    const GgufKeys& set) { return set_lfm2_keys(checkpoint, c, set, false); },
};

extern const ModelFamily kLfm2MoeFamily = {
    .model_type = "lfm2_moe",
    .architecture = "Lfm2MoeForCausalLM",
    .gguf = {.architecture = "lfm2moe",
             .top = kLfm2GgufTop,
             .layer = kLfm2GgufLayer,
             .is_recurrent = true,
             .has_experts = true,
             .read_keys = read_lfm2_keys},
    .build = [](const Checkpoint& checkpoint,
                const DecoderOutputs& outputs) { return build_lfm2("lfm2_moe", true, checkpoint, outputs); },
    .gguf_form = lfm2_gguf_form,
    .common_config = lfm2_common_config,
    .gguf_keys = [](const Checkpoint& checkpoint, const DecoderConfig& c,
                    const GgufKeys& set) { return set_lfm2_keys(checkpoint, c, set, true); },
};

}  // namespace redline
