// Mamba-2: layers of one mixer each, a state-space model with a scalar decay per head; no attention, no MLP (Dao and Gu
// 2024, arXiv:2405.21060).
#include <cmath>

#include "graph/ops/add.h"
#include "graph/ops/gated_norm.h"
#include "models/recurrent.h"
#include "models/registry.h"
#include "models/rope_config.h"

namespace redline {
namespace {

struct Mamba2Config {
  GatedScanAttrs scan;
  int64_t taps = 4;
  bool has_bias = false, has_conv_bias = true;

  int64_t inner_size() const { return scan.num_heads * scan.value_dim; }
};

constexpr int64_t kMamba2MaxWidth = int64_t{1} << 24;

/// [least, most] of the time step; null, which Python's Infinity becomes, is none.
Status read_limits(const nlohmann::json& config, GatedScanAttrs& scan) {
  const auto limit = config.find("time_step_limit");
  if (limit == config.end() || limit->is_null()) return {};
  const auto is_bound = [](const nlohmann::json& bound) {
    return bound.is_number() || bound.is_null() || bound.is_object();
  };
  if (!limit->is_array() || limit->size() != 2 || !is_bound((*limit)[0]) || !is_bound((*limit)[1]))
    return invalid_argument("config: time_step_limit must be a list of two numbers");
  // Newer files have {"__float__": "Infinity"}.
  if ((*limit)[0].is_number()) scan.step_min = (*limit)[0].get<float>();
  if ((*limit)[1].is_number()) scan.step_max = (*limit)[1].get<float>();
  return {};
}

Result<Mamba2Config> read_mixer(const Checkpoint& checkpoint, int64_t hidden_size) {
  ConfigReader r(checkpoint.config);
  Mamba2Config m;
  int64_t inner = 0;
  if (checkpoint.gguf_names) {
    inner = r.integer("ssm_inner_size", 1, kMamba2MaxWidth);
    m.scan.num_heads = r.integer("ssm_time_step_rank", 1, kMamba2MaxWidth);
    m.scan.num_groups = r.integer("ssm_group_count", 1, kMamba2MaxWidth, 1);
    m.scan.key_dim = r.integer("ssm_state_size", 1, kMamba2MaxWidth);
    m.taps = r.integer("ssm_conv_kernel", 1, 64);
    REDLINE_TRY(r.status());
    m.scan.value_dim = inner / m.scan.num_heads;
  } else {
    inner = std::llround(r.number("expand", 0, 1000, 2.0) * static_cast<double>(hidden_size));
    m.scan.num_heads = r.integer("num_heads", 1, kMamba2MaxWidth, 128);
    m.scan.value_dim = r.integer("head_dim", 1, kMamba2MaxWidth, 64);
    m.scan.num_groups = r.integer("n_groups", 1, kMamba2MaxWidth, 8);
    m.scan.key_dim = r.integer("state_size", 1, kMamba2MaxWidth, 128);
    m.taps = r.integer("conv_kernel", 1, 64, 4);
    m.has_bias = r.boolean("use_bias", false);
    m.has_conv_bias = r.boolean("use_conv_bias", true);
    if (const std::string act = r.text("hidden_act", "silu"); act != "silu" && act != "swish")
      r.fail(unsupported("config: hidden_act \"{}\"; this family uses silu", act));
    REDLINE_TRY(r.status());
    REDLINE_TRY(read_limits(checkpoint.config, m.scan));
  }
  if (inner != m.inner_size())
    return invalid_argument("config: {} heads of {} elements are not the {} of the mixer", m.scan.num_heads,
                            m.scan.value_dim, inner);
  if (m.scan.num_heads % m.scan.num_groups != 0)
    return invalid_argument("config: {} heads in {} groups", m.scan.num_heads, m.scan.num_groups);
  return m;
}

Value mixer(LayerBuilder& b, Value x, const Mamba2Config& m) {
  const int64_t inner = m.inner_size(), hidden = b.config().hidden_size, heads = m.scan.num_heads;
  const int64_t joint = m.scan.columns(), stored = inner + joint + heads;
  const auto project = [&](const char* part, int64_t begin, int64_t rows) {
    return b.project_part(x, "mixer.in_proj", part, stored, begin, rows, hidden, m.has_bias);
  };
  const Value gate = project("mixer.gate", 0, inner), joint_x = project("mixer.xbc", inner, joint);
  GatedScanInputs in;
  in.step = project("mixer.step", inner + joint, heads);
  in.x = short_convolution(b, joint_x, "mixer", joint, m.taps, m.has_conv_bias);
  in.decay = take_decay(b, "mixer", heads);
  in.bias = take_step_bias(b, "mixer", heads);
  in.skip = b.weights().take(b.scope() + "mixer.D", {heads});
  in.state = recurrent_state(b, "mixer.state", m.scan.state_elements());
  b.graph().set_scope(b.scope() + "mixer.scan");
  const Value y = gated_scan(b.graph(), in, m.scan);

  b.graph().set_scope(b.scope() + "mixer.norm");
  const std::string norm = b.scope() + "mixer.norm.weight";
  const int64_t groups = m.scan.num_groups, group = inner / groups;
  // GGUF files have an axis of groups.
  const Value weight = b.weights().rank(norm) == 2 ? b.weights().take_as(norm, {groups, group}, {inner})
                                                   : b.weights().take(norm, {inner});
  const Value normed =
      gated_norm(b.graph(), y, gate, weight, {.group = group, .eps = b.config().rms_norm_eps, .gates_first = true});
  return b.project(normed, "mixer.out_proj", hidden, inner, m.has_bias);
}

Result<LanguageModel> build_mamba2(const Checkpoint& checkpoint) {
  ConfigReader r(checkpoint.config);
  DecoderConfig c;
  c.num_layers = r.integer("num_hidden_layers", 1, 1000);
  c.hidden_size = r.integer("hidden_size", 1, kMamba2MaxWidth);
  c.vocab_size = r.integer("vocab_size", 1, int64_t{1} << 28);
  // Nothing bounds the length of a sequence; GGUF files state this too.
  c.max_positions = r.integer("max_position_embeddings", 1, int64_t{1} << 40, int64_t{1} << 20);
  c.rms_norm_eps =
      static_cast<float>(r.number(r.has("rms_norm_eps") ? "rms_norm_eps" : "layer_norm_epsilon", 0, 1, 1e-5));
  c.tie_word_embeddings = r.boolean("tie_word_embeddings", false);
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(const Mamba2Config m, read_mixer(checkpoint, c.hidden_size));
  c.intermediate_size = m.inner_size();
  c.num_heads = c.num_kv_heads = m.scan.num_heads;
  c.head_dim = m.scan.value_dim;
  c.window.assign(static_cast<size_t>(c.num_layers), 0);
  c.names = {.layers = "backbone.layers.",
             .embedding = "backbone.embeddings",
             .norm = "backbone.norm_f",
             .head = "lm_head",
             .positions = ""};
  // No layer reads it.
  REDLINE_ASSIGN(c.rope, read_rope_config(nlohmann::json::object(), 2, c.max_positions));
  const auto layer = [&](LayerBuilder& b, Value x) {
    return add(b.graph(), x, mixer(b, b.norm(x, "norm", c.hidden_size), m));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("mamba2", c, checkpoint, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

constexpr GgufName kMamba2GgufTop[] = {
    {"token_embd", "backbone.embeddings"}, {"output_norm", "backbone.norm_f"}, {"output", "lm_head"}};
constexpr GgufName kMamba2GgufLayer[] = {
    {"attn_norm", "norm"}, {"ssm_in", "mixer.in_proj"}, {"ssm_conv1d", "mixer.conv1d"}, {"ssm_dt", "mixer.dt"},
    {"ssm_a", "mixer.A"},  {"ssm_d", "mixer.D"},        {"ssm_norm", "mixer.norm"},     {"ssm_out", "mixer.out_proj"}};

}  // namespace

extern const ModelFamily kMamba2Family = {
    .model_type = "mamba2",
    .architecture = "Mamba2ForCausalLM",
    .gguf = {.architecture = "mamba2",
             .top = kMamba2GgufTop,
             .layer = kMamba2GgufLayer,
             .hf_layers = "backbone.layers.",
             .is_recurrent = true},
    .build = build_mamba2,
};

}  // namespace redline
