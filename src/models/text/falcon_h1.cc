// Falcon-H1: attention and a Mamba-2 mixer side by side in each layer, with constant multipliers of most projections
// (Zuo et al. 2025, arXiv:2507.22448).
#include <algorithm>
#include <cmath>
#include <span>

#include "graph/ops/add.h"
#include "graph/ops/concat.h"
#include "graph/ops/gated_norm.h"
#include "graph/ops/scale.h"
#include "graph/ops/silu_mul.h"
#include "models/blocks/recurrent.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

namespace redline {
namespace {

/// Settings beyond those of a Llama. Names follow config.json.
struct FalconH1Config {
  Mamba2Mixer mamba;
  bool has_norm = false;  ///< the mixer's result is normalized, not only gated
  bool norm_before_gate = true;
  bool has_out_bias = false, attention_bias = false, mlp_bias = false;
  float attention_in = 1, attention_out = 1, ssm_in = 1, ssm_out = 1;
  float ssm[5] = {1, 1, 1, 1, 1};  ///< multipliers of the gate, x, B, C and the time steps
  float gate = 1, down = 1;        ///< multipliers of the MLP
};

/// Reads a list of `count` multipliers; a missing key leaves them as they are.
void read_multipliers(ConfigReader& r, const nlohmann::json& config, const char* key, std::span<float> out) {
  const auto list = config.find(key);
  if (list == config.end() || list->is_null()) return;
  if (!list->is_array() || list->size() != out.size())
    return r.fail(invalid_argument("config: {} must list {} numbers", key, out.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    if (!(*list)[i].is_number()) return r.fail(invalid_argument("config: {}[{}] is not a number", key, i));
    out[i] = (*list)[i].get<float>();
  }
}

Result<FalconH1Config> read_falcon_h1(const nlohmann::json& config, int64_t hidden_size) {
  constexpr int64_t kMaxWidth = int64_t{1} << 24;
  ConfigReader r(config);
  FalconH1Config f;
  Mamba2Mixer& m = f.mamba;
  const bool is_null = config.contains("mamba_d_ssm") && !r.has("mamba_d_ssm");
  const int64_t inner =
      is_null ? static_cast<int64_t>(r.number("mamba_expand", 1e-3, 1e3, 2) * static_cast<double>(hidden_size))
              : r.integer("mamba_d_ssm", 1, kMaxWidth, 1024);
  m.scan.num_heads = r.integer("mamba_n_heads", 1, kMaxWidth, 128);
  const auto head = config.find("mamba_d_head");
  const bool divides = head != config.end() && (head->is_null() || *head == "auto");
  if (r.status().ok())
    m.scan.value_dim = divides ? inner / m.scan.num_heads : r.integer("mamba_d_head", 1, kMaxWidth, 8);
  m.scan.num_groups = r.integer("mamba_n_groups", 1, kMaxWidth, 1);
  m.scan.key_dim = r.integer("mamba_d_state", 1, kMaxWidth, 256);
  m.taps = r.integer("mamba_d_conv", 1, 64, 4);
  m.has_bias = r.boolean("mamba_proj_bias", false);
  m.has_conv_bias = r.boolean("mamba_conv_bias", true);
  f.has_norm = r.boolean("mamba_rms_norm", false);
  f.norm_before_gate = r.boolean("mamba_norm_before_gate", true);
  f.has_out_bias = r.boolean("projectors_bias", false);
  f.attention_bias = r.boolean("attention_bias", false);
  f.mlp_bias = r.boolean("mlp_bias", false);
  const auto multiplier = [&](const char* key) { return static_cast<float>(r.number(key, -1e6, 1e6, 1.0)); };
  f.attention_in = multiplier("attention_in_multiplier");
  f.attention_out = multiplier("attention_out_multiplier");
  f.ssm_in = multiplier("ssm_in_multiplier");
  f.ssm_out = multiplier("ssm_out_multiplier");
  read_multipliers(r, config, "ssm_multipliers", f.ssm);
  float mlp[2] = {1, 1};
  read_multipliers(r, config, "mlp_multipliers", mlp);
  f.gate = mlp[0];
  f.down = mlp[1];
  REDLINE_TRY(r.status());
  REDLINE_TRY(read_step_limits(config, m.scan));
  REDLINE_TRY(check_mamba2_mixer(m, inner));
  return f;
}

Value scaled(LayerBuilder& b, Value x, float factor) { return factor == 1 ? x : scale(b.graph(), x, {factor}); }

Value mamba_of_falcon_h1(LayerBuilder& b, Value x, const FalconH1Config& f) {
  const Mamba2Mixer& m = f.mamba;
  const int64_t inner = m.inner_size(), hidden = b.config().hidden_size, heads = m.scan.num_heads,
                keys = m.scan.num_groups * m.scan.key_dim, stored = 2 * inner + 2 * keys + heads;
  x = scaled(b, x, f.ssm_in);
  const auto project = [&](const char* part, int64_t begin, int64_t rows, float factor) {
    return scaled(b, b.project_part(x, "mamba.in_proj", part, stored, begin, rows, hidden, m.has_bias), factor);
  };
  const Value gate = project("mamba.gate", 0, inner, f.ssm[0]);
  const Value values = project("mamba.x", inner, inner, f.ssm[1]),
              b_part = project("mamba.b", 2 * inner, keys, f.ssm[2]),
              c_part = project("mamba.c", 2 * inner + keys, keys, f.ssm[3]);
  GatedScanInputs in;
  in.step = project("mamba.step", 2 * inner + 2 * keys, heads, f.ssm[4]);
  b.graph().set_scope(b.scope() + "mamba.joint");
  const Value joint = concat_cols(b.graph(), values, concat_cols(b.graph(), b_part, c_part));
  in.x = short_convolution(b, joint, "mamba", m.scan.columns(), m.taps, m.has_conv_bias);
  in.decay = take_decay(b, "mamba", heads);
  in.bias = take_step_bias(b, "mamba", heads);
  in.skip = b.weights().take(b.scope() + "mamba.D", {heads});
  in.state = recurrent_state(b, "mamba.state", m.scan.state_elements());
  b.graph().set_scope(b.scope() + "mamba.scan");
  Value y = gated_scan(b.graph(), in, m.scan);
  b.graph().set_scope(b.scope() + "mamba.norm");
  if (f.has_norm) {
    const std::string name = b.scope() + "mamba.norm.weight";
    const int64_t groups = m.scan.num_groups, group = inner / groups;
    const Value weight = b.weights().rank(name) == 2 ? b.weights().take_as(name, {groups, group}, {inner})
                                                     : b.weights().take(name, {inner});
    y = gated_norm(b.graph(), y, gate, weight,
                   {.group = group, .eps = b.config().rms_norm_eps, .gates_first = !f.norm_before_gate});
  } else {
    y = silu_mul(b.graph(), gate, y);
  }
  return scaled(b, b.project(y, "mamba.out_proj", hidden, inner, f.has_out_bias), f.ssm_out);
}

Value mlp_of_falcon_h1(LayerBuilder& b, Value x, const FalconH1Config& f) {
  const DecoderConfig& c = b.config();
  const Value gate = b.project(x, "feed_forward.gate_proj", c.intermediate_size, c.hidden_size, f.mlp_bias);
  const Value up = b.project(x, "feed_forward.up_proj", c.intermediate_size, c.hidden_size, f.mlp_bias);
  b.graph().set_scope(b.scope() + "feed_forward");
  const Value inner = silu_mul(b.graph(), scaled(b, gate, f.gate), up);
  return scaled(b, b.project(inner, "feed_forward.down_proj", c.hidden_size, c.intermediate_size, f.mlp_bias), f.down);
}

Result<LanguageModel> build_falcon_h1(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const nlohmann::json& config = checkpoint.config;
  REDLINE_ASSIGN(DecoderConfig c,
                 read_decoder_config(config, {.num_kv_heads = 8, .max_positions = 8192, .norm_eps_value = 1e-5}));
  c.names.norm = "model.final_layernorm";
  ConfigReader r(config);
  c.embedding_scale = static_cast<float>(r.number("embedding_multiplier", -1e6, 1e6, 1.0));
  c.logit_scale = static_cast<float>(r.number("lm_head_multiplier", -1e6, 1e6, 1.0));
  // Keys are multiplied before rope, which is linear, so the scores are.
  c.attention_scale =
      static_cast<float>(r.number("key_multiplier", 1e-6, 1e6, 1.0) / std::sqrt(static_cast<double>(c.head_dim)));
  REDLINE_TRY(r.status());
  FalconH1Config f;
  if (checkpoint.gguf_names) {  // the multipliers are part of the matrices
    REDLINE_ASSIGN(f.mamba, read_gguf_mamba2_mixer(config));
    f.norm_before_gate = false;
    f.has_norm = checkpoint.tensors.count("model.layers.0.mamba.norm.weight") > 0;
  } else {
    REDLINE_ASSIGN(f, read_falcon_h1(config, c.hidden_size));
  }
  const SelfAttention attention = {.qkv_bias = f.attention_bias, .output_bias = f.attention_bias};
  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    const Value mamba = mamba_of_falcon_h1(b, h, f);
    const Value y = scaled(b, self_attention(b, scaled(b, h, f.attention_in), attention), f.attention_out);
    x = add(b.graph(), x, add(b.graph(), mamba, y));
    return add(b.graph(), x, mlp_of_falcon_h1(b, b.norm(x, "pre_ff_layernorm", c.hidden_size), f));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("falcon_h1", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

Status set_falcon_h1_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  REDLINE_ASSIGN(const FalconH1Config f, read_falcon_h1(checkpoint.config, c.hidden_size));
  const bool is_plain = f.attention_in == 1 && f.attention_out == 1 && f.ssm_in == 1 && f.ssm_out == 1 && f.gate == 1 &&
                        f.down == 1 && c.embedding_scale == 1 && c.logit_scale == 1 &&
                        std::all_of(std::begin(f.ssm), std::end(f.ssm), [](float factor) { return factor == 1; });
  if (!is_plain) return unsupported("GGUF has no keys for the multipliers of falcon_h1");
  if (f.has_norm && f.norm_before_gate) return unsupported("GGUF has no key for mamba_norm_before_gate of falcon_h1");
  if (f.has_out_bias || f.mlp_bias) return unsupported("GGUF has no place for the biases of falcon_h1");
  return set_mamba2_mixer_keys(f.mamba, set);
}

GgufForm falcon_h1_gguf_form(const Checkpoint& checkpoint, const DecoderConfig&, std::string_view name) {
  ConfigReader r(checkpoint.config);
  return mamba2_gguf_form(checkpoint, name, "mamba", r.integer("mamba_n_groups", 1, int64_t{1} << 24, 1));
}

constexpr GgufName kFalconH1GgufTop[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.final_layernorm"}, {"output", "lm_head"}};
constexpr GgufName kFalconH1GgufLayer[] = {{"attn_norm", "input_layernorm"},
                                           {"attn_q", "self_attn.q_proj"},
                                           {"attn_k", "self_attn.k_proj"},
                                           {"attn_v", "self_attn.v_proj"},
                                           {"attn_output", "self_attn.o_proj"},
                                           {"ssm_in", "mamba.in_proj"},
                                           {"ssm_conv1d", "mamba.conv1d"},
                                           {"ssm_dt", "mamba.dt"},
                                           {"ssm_a", "mamba.A"},
                                           {"ssm_d", "mamba.D"},
                                           {"ssm_norm", "mamba.norm"},
                                           {"ssm_out", "mamba.out_proj"},
                                           {"ffn_norm", "pre_ff_layernorm"},
                                           {"ffn_gate", "feed_forward.gate_proj"},
                                           {"ffn_up", "feed_forward.up_proj"},
                                           {"ffn_down", "feed_forward.down_proj"}};

}  // namespace

extern const ModelFamily kFalconH1Family = {
    .model_type = "falcon_h1",
    .architecture = "FalconH1ForCausalLM",
    .gguf = {.architecture = "falcon-h1",
             .top = kFalconH1GgufTop,
             .layer = kFalconH1GgufLayer,
             .is_recurrent = true,
             .read_keys = read_ssm_keys},
    .build = build_falcon_h1,
    .gguf_form = falcon_h1_gguf_form,
    .gguf_keys = set_falcon_h1_keys,
};

}  // namespace redline
