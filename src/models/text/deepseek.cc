// DeepSeek-V2 and V3, and Kimi K2, which has the architecture of V3: latent attention, and a mixture of experts with
// shared experts and group-limited routing (arXiv:2405.04434, arXiv:2412.19437).
//
// Keys and values of all heads are products of one latent vector per token, and the cache keeps nothing else: q W_k^T
// is as good a query of the latent as q of the key (arXiv:2405.04434, 2.1.2, "absorbed"), and W_v is applied to the
// weighted sum of latents. So attention has a single key-value head, [latent, rotated part], which all query heads
// share. Its values are the keys; the rotated part of a result is not read.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "graph/ops/concat.h"
#include "graph/ops/head_linear.h"
#include "graph/ops/linear.h"
#include "models/blocks/moe.h"
#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"
#include "tensor/kv_limits.h"

namespace redline {
namespace {

/// Epsilon of the norms inside latent attention, whatever rms_norm_eps is: DeepSeek's code gives them no other.
constexpr float kLatentEps = 1e-6f;

/// Sizes of latent attention, named as in config.json.
struct LatentConfig {
  int64_t q_lora_rank = 0;  ///< 0: queries are projected by one matrix
  int64_t kv_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
  bool has_bias = false, interleaves = true;

  int64_t q_size() const { return qk_nope_head_dim + qk_rope_head_dim; }
  /// Returns the row in the file of row i of a rotated part. In files of models that interleave, neighbours rotate
  /// together; here row i rotates with row i + half.
  int64_t rope_row(int64_t i) const {
    const int64_t half = qk_rope_head_dim / 2;
    return !interleaves ? i : i < half ? 2 * i : 2 * (i - half) + 1;
  }
};

Result<LatentConfig> read_latent(const nlohmann::json& config, bool is_gguf) {
  constexpr int64_t kMaxSize = int64_t{1} << 16;
  ConfigReader r(config);
  LatentConfig m;
  if (r.has("q_lora_rank")) m.q_lora_rank = r.integer("q_lora_rank", 0, kMaxSize);
  m.kv_lora_rank = r.integer("kv_lora_rank", 1, kMaxSize, is_gguf ? std::nullopt : std::optional<int64_t>(512));
  m.qk_rope_head_dim = r.integer("qk_rope_head_dim", 2, kMaxSize, 64);
  // Files without the sizes of single heads have them as attention.key_length and value_length.
  if (is_gguf) {
    m.qk_nope_head_dim =
        r.integer(r.has("key_length_mla") ? "key_length_mla" : "head_dim", 1, kMaxSize) - m.qk_rope_head_dim;
    m.v_head_dim = r.integer(r.has("v_head_dim") ? "v_head_dim" : "value_length", 1, kMaxSize);
  } else {
    m.qk_nope_head_dim = r.integer("qk_nope_head_dim", 1, kMaxSize, 128);
    m.v_head_dim = r.integer("v_head_dim", 1, kMaxSize, 128);
  }
  m.has_bias = r.boolean("attention_bias", false);
  m.interleaves = r.boolean("rope_interleave", true);
  REDLINE_TRY(r.status());
  return m;
}

Value project_queries(LayerBuilder& b, Value x, const LatentConfig& m, Value& rotated) {
  const DecoderConfig& c = b.config();
  GraphBuilder& g = b.graph();
  int64_t in = c.hidden_size;
  std::string name = "self_attn.q_proj";
  if (m.q_lora_rank > 0) {
    x = b.norm(b.project(x, "self_attn.q_a_proj", m.q_lora_rank, in, m.has_bias), "self_attn.q_a_layernorm",
               m.q_lora_rank, kLatentEps);
    in = m.q_lora_rank;
    name = "self_attn.q_b_proj";
  }
  const auto part = [&](const char* suffix, int64_t size, const std::function<int64_t(int64_t)>& row_in_head) {
    const std::string own = b.scope() + name + suffix;
    g.set_scope(own);
    const auto row = [=, head = m.q_size()](int64_t n) { return n / size * head + row_in_head(n % size); };
    return linear(g, x,
                  b.weights().take_picked(b.scope() + name + ".weight", {c.num_heads * m.q_size(), in},
                                          c.num_heads * size, row, own + ".weight"));
  };
  rotated = part("_rope", m.qk_rope_head_dim, [m](int64_t i) { return m.qk_nope_head_dim + m.rope_row(i); });
  return part("_nope", m.qk_nope_head_dim, [](int64_t i) { return i; });
}

/// Adds [normed latent, rotated part] of each token.
Value project_latent(LayerBuilder& b, Value x, const LatentConfig& m, const std::function<Value(Value)>& rotate) {
  const DecoderConfig& c = b.config();
  GraphBuilder& g = b.graph();
  const std::string name = b.scope() + "self_attn.kv_a_proj_with_mqa";
  const int64_t stored = m.kv_lora_rank + m.qk_rope_head_dim;
  const auto part = [&](const char* suffix, int64_t rows, const std::function<int64_t(int64_t)>& row_of) {
    g.set_scope(name + suffix);
    const Value weight =
        b.weights().take_picked(name + ".weight", {stored, c.hidden_size}, rows, row_of, name + suffix + ".weight");
    if (!b.weights().has_bias(name + ".bias", m.has_bias)) return linear(g, x, weight);
    return linear(g, x, weight,
                  b.weights().take_gathered(name + ".bias", {stored}, rows, row_of, name + suffix + ".bias"));
  };
  const Value latent = part("_latent", m.kv_lora_rank, [](int64_t i) { return i; });
  const Value rope = part("_rope", m.qk_rope_head_dim, [m](int64_t i) { return m.kv_lora_rank + m.rope_row(i); });
  const Value normed = b.norm(latent, "self_attn.kv_a_layernorm", m.kv_lora_rank, kLatentEps);
  return concat_cols(g, normed, rotate(rope));
}

/// Two matrices of each head: `keys` takes queries into the latent space, [kv_lora_rank, qk_nope_head_dim], and
/// `values` takes results out of it, [v_head_dim, kv_lora_rank].
struct Absorbed {
  std::vector<Value> keys, values;
};
Absorbed take_absorbed(LayerBuilder& b, const LatentConfig& m) {
  WeightReader& w = b.weights();
  const int64_t heads = b.config().num_heads, nope = m.qk_nope_head_dim, rank = m.kv_lora_rank;
  const std::string both = b.scope() + "self_attn.kv_b_proj.weight", k = b.scope() + "self_attn.k_b_proj.weight",
                    v = b.scope() + "self_attn.v_b_proj.weight";
  Absorbed a;
  for (int64_t h = 0; h < heads; ++h) {
    const std::string key = fmt::format("{}self_attn.k_b_proj.{}.weight", b.scope(), h),
                      value = fmt::format("{}self_attn.v_b_proj.{}.weight", b.scope(), h);
    if (w.has(k)) {  // GGUF files have keys transposed and by head
      a.keys.push_back(w.take_slice(k, {heads, rank, nope}, h, 0, rank, key));
      a.values.push_back(w.take_slice(v, {heads, m.v_head_dim, rank}, h, 0, m.v_head_dim, value));
    } else {
      const int64_t first = h * (nope + m.v_head_dim), stored = heads * (nope + m.v_head_dim);
      a.keys.push_back(w.take_made(both, key, {stored, rank}, {rank, nope}, [=](const TensorView& from, uint8_t* to) {
        const auto size = static_cast<size_t>(row_bytes(from.dtype, 1));
        const auto* data = static_cast<const uint8_t*>(from.data);
        for (int64_t i = 0; i < nope; ++i)
          for (int64_t n = 0; n < rank; ++n)
            std::memcpy(to + static_cast<size_t>(n * nope + i) * size,
                        data + static_cast<size_t>((first + i) * rank + n) * size, size);
      }));
      a.values.push_back(w.take_rows(both, {stored, rank}, first + nope, m.v_head_dim, value));
    }
    if (!a.values.back().valid()) break;
  }
  return a;
}

Value latent_attention(LayerBuilder& b, Value x, const LatentConfig& m) {
  const DecoderConfig& c = b.config();
  GraphBuilder& g = b.graph();
  const auto rotate = [&](Value v) { return b.rotate(v, m.qk_rope_head_dim); };
  Value rotated;
  const Value q = project_queries(b, x, m, rotated);
  const Value latent = project_latent(b, x, m, rotate);
  const Absorbed absorbed = take_absorbed(b, m);
  g.set_scope(b.scope() + "self_attn.k_b_proj");
  const Value q_latent = head_linear(g, q, absorbed.keys);
  g.set_scope(b.scope() + "self_attn.q");
  const Value y = b.attend(concat_heads(g, q_latent, rotate(rotated), c.num_heads), latent, latent);
  g.set_scope(b.scope() + "self_attn.v_b_proj");
  return b.project(head_linear(g, y, absorbed.values), "self_attn.o_proj", c.hidden_size, c.num_heads * m.v_head_dim,
                   m.has_bias);
}

/// Reads the settings of expert selection, which differ between V2 and V3.
void read_routing(ConfigReader& r, bool is_v3, bool is_gguf, MoeConfig& moe) {
  RouterAttrs& router = moe.router;
  const std::string method = r.text("topk_method", is_v3 ? "noaux_tc" : is_gguf ? "group_limited_greedy" : "greedy");
  if (is_v3 ? method != "noaux_tc" : method != "greedy" && method != "group_limited_greedy")
    r.fail(
        unsupported("config: topk_method \"{}\"; Redline runs greedy and group_limited_greedy in DeepSeek-V2, noaux_tc "
                    "in V3",
                    method));
  const std::string scoring = r.text("scoring_func", is_v3 ? "sigmoid" : "softmax");
  if (scoring != (is_v3 ? "sigmoid" : "softmax"))
    r.fail(unsupported("config: scoring_func \"{}\"; Redline runs softmax in DeepSeek-V2, sigmoid in V3", scoring));
  if (!is_v3 && router.normalizes) r.fail(unsupported("config: norm_topk_prob of DeepSeek-V2"));
  router.score = is_v3 ? RouterScore::kSigmoid : RouterScore::kSoftmax;
  moe.has_correction_bias = is_v3;
  if (method == "greedy") return;
  router.num_groups = r.has("n_group") ? r.integer("n_group", 1, router.num_experts) : 1;
  router.groups_per_token = r.has("topk_group") ? r.integer("topk_group", 1, router.num_groups) : router.num_groups;
  router.groups_by_two_best = is_v3;
}

MoeConfig read_experts(ConfigReader& r, bool is_v3, bool is_gguf) {
  MoeConfig moe = read_moe_config(r, is_v3);
  moe.intermediate_size = r.integer("moe_intermediate_size", 1, int64_t{1} << 24);
  const int64_t shared = r.integer("n_shared_experts", 0, 1000, 0);
  moe.shared_intermediate_size = shared * moe.intermediate_size;
  read_routing(r, is_v3, is_gguf, moe);
  return moe;
}

/// Returns the number of layers without experts: the first ones, by first_k_dense_replace or, in later families, by
/// mlp_layer_types. A model that names no experts has none.
Result<int64_t> read_dense_layers(const nlohmann::json& config, int64_t num_layers) {
  ConfigReader r(config);
  if (!r.has("n_routed_experts") && !r.has("num_experts")) return num_layers;
  const auto types = config.find("mlp_layer_types");
  if (types == config.end() || types->is_null()) {
    const int64_t dense = r.integer("first_k_dense_replace", 0, num_layers, 0);
    REDLINE_TRY(r.status());
    return dense;
  }
  if (!types->is_array() || static_cast<int64_t>(types->size()) != num_layers)
    return invalid_argument("config: mlp_layer_types must list {} layers", num_layers);
  const auto first = std::find(types->begin(), types->end(), "sparse");
  if (std::any_of(types->begin(), first, [](const auto& type) { return type != "dense"; }) ||
      std::any_of(first, types->end(), [](const auto& type) { return type != "sparse"; }))
    return unsupported("config: mlp_layer_types other than dense layers followed by sparse ones");
  return first - types->begin();
}

Result<LanguageModel> build_deepseek(const char* name, const nlohmann::json& settings, const Checkpoint& checkpoint,
                                     const DecoderOutputs& outputs, bool is_v3) {
  const bool is_gguf = checkpoint.gguf_names != nullptr;
  nlohmann::json config = settings;
  ConfigReader r(settings);
  constexpr int64_t kGgufSigmoid = 2;
  if (is_gguf) is_v3 = r.integer("expert_gating_func", 0, 100, 1) == kGgufSigmoid;
  REDLINE_ASSIGN(const LatentConfig m, read_latent(settings, is_gguf));
  if (m.qk_nope_head_dim < 1 || m.qk_rope_head_dim % 2 != 0)
    return invalid_argument("config: heads of {} elements, {} of them rotated", m.q_size(), m.qk_rope_head_dim);
  config["head_dim"] = m.qk_rope_head_dim;  // the size of the part that rope rotates
  config["num_key_value_heads"] = 1;
  config.erase("partial_rotary_factor");
  nlohmann::json& scaling =
      config[config.value("rope_scaling", nlohmann::json()).is_object() ? "rope_scaling" : "rope_parameters"];
  if (scaling.is_object() && scaling.contains("log_multiplier") && scaling["log_multiplier"].is_number()) {
    const double all = scaling["log_multiplier"].get<double>() / 0.1;  // as GGUF has it
    scaling["mscale"] = scaling["mscale_all_dim"] = all;
  }
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.max_positions = is_v3 ? 4096 : 2048}));
  c.head_dim = m.kv_lora_rank + m.qk_rope_head_dim;
  if (c.head_dim > kMaxKvHeadDim)
    return unsupported("config: kv_lora_rank {} and qk_rope_head_dim {}; Redline runs up to {} together",
                       m.kv_lora_rank, m.qk_rope_head_dim, kMaxKvHeadDim);
  double scale = 1 / std::sqrt(static_cast<double>(m.q_size()));
  if (scaling.is_object()) {
    ConfigReader s(scaling);
    const double factor = s.number("factor", 1e-6, 1e12, 1.0), all = s.number("mscale_all_dim", 0, 1e12, 0.0);
    REDLINE_TRY(s.status());
    if (factor > 1) scale *= std::pow(0.1 * all * std::log(factor) + 1, 2);
  }
  c.attention_scale = static_cast<float>(scale);

  REDLINE_ASSIGN(const int64_t dense, read_dense_layers(settings, c.num_layers));
  const MoeConfig moe = dense < c.num_layers ? read_experts(r, is_v3, is_gguf) : MoeConfig{};
  if (r.integer("moe_layer_freq", 1, 1000, 1) != 1) r.fail(unsupported("config: moe_layer_freq other than 1"));
  REDLINE_TRY(r.status());
  MoeNames names;
  names.shared = "mlp.shared_experts";

  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t, Value x) { return latent_attention(b, x, m); };
  parts.mlp = [&](LayerBuilder& b, int64_t layer, Value x) {
    if (layer == 0) ignore_layers_beyond(b, checkpoint);
    return layer < dense ? b.gated_mlp(x, false) : moe_block(b, x, moe, names);
  };
  return build_llama_decoder(name, c, checkpoint, outputs, {}, parts);
}

/// Returns the GGUF tensors: queries unchanged, keys and values by head, keys transposed.
std::vector<GgufForm> deepseek_gguf_parts(const Checkpoint& checkpoint, const DecoderConfig& c, std::string_view name) {
  if (name.starts_with(fmt::format("{}{}.", c.names.layers, c.num_layers))) return {};
  const size_t at = name.find("kv_b_proj.weight");
  if (at == std::string_view::npos) return moe_gguf_parts(checkpoint, c, name);
  const auto latent = read_latent(checkpoint.config, false);
  if (!latent.ok()) return {};
  const int64_t nope = latent->qk_nope_head_dim, value = latent->v_head_dim, rank = latent->kv_lora_rank;
  const std::string stem(name.substr(0, at));
  GgufForm keys, values;
  keys.name = stem + "k_b_proj.weight";
  keys.shape = {c.num_heads, rank, nope};
  keys.stored_element = [=](int64_t row, int64_t column) {
    return (row / rank * (nope + value) + column) * rank + row % rank;
  };
  values.name = stem + "v_b_proj.weight";
  values.shape = {c.num_heads, value, rank};
  values.stored_row = [=](int64_t row) { return row / value * (nope + value) + nope + row % value; };
  return {keys, values};
}

nlohmann::json deepseek_common_config(const nlohmann::json& config) { return without_magnitudes(config); }

Status set_deepseek_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set, bool is_v3) {
  REDLINE_ASSIGN(const LatentConfig m, read_latent(checkpoint.config, false));
  if (!m.interleaves) return unsupported("GGUF has no key for rope_interleave of DeepSeek");
  ConfigReader r(checkpoint.config);
  REDLINE_ASSIGN(const int64_t dense, read_dense_layers(checkpoint.config, c.num_layers));
  const MoeConfig moe = read_experts(r, is_v3, false);
  constexpr int64_t kGgufSoftmax = 1, kGgufSigmoid = 2;
  if (m.q_lora_rank > 0) set.integer("attention.q_lora_rank", m.q_lora_rank);
  set.integer("attention.kv_lora_rank", m.kv_lora_rank);
  set.integer("attention.key_length", m.kv_lora_rank + m.qk_rope_head_dim);
  set.integer("attention.value_length", m.kv_lora_rank);
  set.integer("attention.key_length_mla", m.q_size());
  set.integer("attention.value_length_mla", m.v_head_dim);
  set.integer("leading_dense_block_count", dense);
  set.integer("expert_count", moe.router.num_experts);
  set.integer("expert_used_count", moe.router.experts_per_token);
  set.integer("expert_feed_forward_length", moe.intermediate_size);
  set.integer("expert_shared_count", r.integer("n_shared_experts", 0, 1000, 0));
  set.integer("expert_group_count", moe.router.num_groups);
  set.integer("expert_group_used_count", moe.router.groups_per_token);
  set.integer("expert_gating_func", is_v3 ? kGgufSigmoid : kGgufSoftmax);
  set.number("expert_weights_scale", double{moe.router.scale});
  set.boolean("expert_weights_norm", moe.router.normalizes);
  REDLINE_TRY(r.status());
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto scaling = checkpoint.config.find(key);
    if (scaling == checkpoint.config.end() || !scaling->is_object()) continue;
    ConfigReader s(*scaling);
    const double own = s.number("mscale", 0, 1e12, 0.0), all = s.number("mscale_all_dim", 0, 1e12, 0.0);
    REDLINE_TRY(s.status());
    if (own != all) return unsupported("GGUF has no key for an mscale that is not mscale_all_dim");
    if (all != 0) set.number("rope.scaling.yarn_log_multiplier", 0.1 * all);
  }
  return {};
}

constexpr GgufName kDeepseekGgufLayer[] = {{"attn_norm", "input_layernorm"},
                                           {"attn_q", "self_attn.q_proj"},
                                           {"attn_q_a", "self_attn.q_a_proj"},
                                           {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                                           {"attn_q_b", "self_attn.q_b_proj"},
                                           {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                                           {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                                           {"attn_kv_b", "self_attn.kv_b_proj"},
                                           {"attn_k_b", "self_attn.k_b_proj"},
                                           {"attn_v_b", "self_attn.v_b_proj"},
                                           {"attn_output", "self_attn.o_proj"},
                                           {"ffn_norm", "post_attention_layernorm"},
                                           {"ffn_gate", "mlp.gate_proj"},
                                           {"ffn_up", "mlp.up_proj"},
                                           {"ffn_down", "mlp.down_proj"}};

/// Returns the defaults of GLM-4.7-Flash that differ from those of DeepSeek-V3.
nlohmann::json glm4_moe_lite_defaults() {
  return {{"q_lora_rank", 768},
          {"qk_nope_head_dim", 192},
          {"v_head_dim", 256},
          {"n_shared_experts", 1},
          {"n_routed_experts", 64},
          {"num_experts_per_tok", 4},
          {"moe_intermediate_size", 1536},
          {"routed_scaling_factor", 1.8},
          {"rms_norm_eps", 1e-5}};
}

void read_latent_keys(GgufKeyReader& keys) {
  read_moe_keys(keys);
  keys.integer("attention.q_lora_rank", "q_lora_rank");
  keys.integer("attention.kv_lora_rank", "kv_lora_rank");
  keys.integer("attention.value_length", "value_length");
  keys.integer("rope.dimension_count", "qk_rope_head_dim");
  keys.integer("attention.key_length_mla", "key_length_mla");
  keys.integer("attention.value_length_mla", "v_head_dim");
}

}  // namespace

extern const ModelFamily kDeepseekV2Family = {
    .model_type = "deepseek_v2",
    .architecture = "DeepseekV2ForCausalLM",
    .gguf = {.architecture = "deepseek2",
             .top = kLlamaGgufTop,
             .layer = kDeepseekGgufLayer,
             .more_layer = kGgufBalancedExperts,
             .has_experts = true,
             .read_keys = read_latent_keys},
    .build =
        [](const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
          return build_deepseek("deepseek_v2", checkpoint.config, checkpoint, outputs, false);
        },
    .common_config = deepseek_common_config,
    .gguf_parts = deepseek_gguf_parts,
    .gguf_keys = [](const Checkpoint& checkpoint, const DecoderConfig& c,
                    const GgufKeys& set) { return set_deepseek_keys(checkpoint, c, set, false); },
    .gguf_implies_scale = true,
};

extern const ModelFamily kDeepseekV3Family = {
    .model_type = "deepseek_v3",
    .architecture = "DeepseekV3ForCausalLM",
    .gguf = {.architecture = "deepseek2",
             .top = kLlamaGgufTop,
             .layer = kDeepseekGgufLayer,
             .more_layer = kGgufBalancedExperts,
             .has_experts = true,
             .read_keys = read_latent_keys},
    .build =
        [](const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
          return build_deepseek("deepseek_v3", checkpoint.config, checkpoint, outputs, true);
        },
    .common_config = deepseek_common_config,
    .gguf_parts = deepseek_gguf_parts,
    .gguf_keys = [](const Checkpoint& checkpoint, const DecoderConfig& c,
                    const GgufKeys& set) { return set_deepseek_keys(checkpoint, c, set, true); },
    .gguf_implies_scale = true,
};

// GLM-4.7-Flash: the layers of DeepSeek-V3 with other defaults.
extern const ModelFamily kGlm4MoeLiteFamily = {
    .model_type = "glm4_moe_lite",
    .architecture = "Glm4MoeLiteForCausalLM",
    .gguf = {.top = kLlamaGgufTop,
             .layer = kDeepseekGgufLayer,
             .more_layer = kGgufBalancedExperts,
             .has_experts = true,
             .export_architecture = "deepseek2"},
    .build =
        [](const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
          nlohmann::json config = with_defaults(checkpoint.config, glm4_moe_lite_defaults());
          if (!config.contains("mlp_layer_types") && !config.contains("first_k_dense_replace"))
            config["first_k_dense_replace"] = 1;
          return build_deepseek("glm4_moe_lite", config, checkpoint, outputs, true);
        },
    .common_config = deepseek_common_config,
    .gguf_parts = deepseek_gguf_parts,
    .gguf_keys = [](const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) -> Status {
      // The keys and the cut of kv_b are read from the config, whose defaults are DeepSeek's there.
      const nlohmann::json defaults = glm4_moe_lite_defaults();
      for (const auto& [key, value] : defaults.items())
        if (!checkpoint.config.contains(key))
          return unsupported("config: {} is missing, which the GGUF file needs", key);
      if (!checkpoint.config.contains("mlp_layer_types") && !checkpoint.config.contains("first_k_dense_replace"))
        return unsupported("config: mlp_layer_types is missing, which the GGUF file needs");
      return set_deepseek_keys(checkpoint, c, set, true);
    },
    .gguf_implies_scale = true,
};

// Youtu-LLM: latent attention without experts.
extern const ModelFamily kYoutuFamily = {
    .model_type = "youtu",
    .architecture = "YoutuForCausalLM",
    .gguf = {},
    .build =
        [](const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
          return build_deepseek("youtu", with_defaults(checkpoint.config, {{"q_lora_rank", 1536}}), checkpoint, outputs,
                                true);
        },
};

}  // namespace redline
