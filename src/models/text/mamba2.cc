// Mamba-2: layers of one mixer each, a state-space model with a scalar decay per head; no attention, no MLP (Dao and Gu
// 2024, arXiv:2405.21060).
#include <cmath>

#include "graph/ops/add.h"
#include "models/blocks/recurrent.h"
#include "models/blocks/rope_config.h"
#include "models/registry.h"

namespace redline {
namespace {

constexpr int64_t kMamba2MaxWidth = int64_t{1} << 24;

Result<Mamba2Mixer> read_mixer(const Checkpoint& checkpoint, int64_t hidden_size) {
  if (checkpoint.gguf_names) return read_gguf_mamba2_mixer(checkpoint.config);
  ConfigReader r(checkpoint.config);
  Mamba2Mixer m;
  const int64_t inner = std::llround(r.number("expand", 0, 1000, 2.0) * static_cast<double>(hidden_size));
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
  REDLINE_TRY(read_step_limits(checkpoint.config, m.scan));
  REDLINE_TRY(check_mamba2_mixer(m, inner));
  return m;
}

Result<LanguageModel> build_mamba2(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
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
  REDLINE_ASSIGN(const Mamba2Mixer m, read_mixer(checkpoint, c.hidden_size));
  c.intermediate_size = m.inner_size();
  c.num_heads = c.num_kv_heads = m.scan.num_heads;
  c.head_dim = m.scan.value_dim;
  c.window.assign(static_cast<size_t>(c.num_layers), 0);
  c.names = {.layers = "backbone.layers.",
             .embedding = "backbone.embeddings",
             .norm = "backbone.norm_f",
             .head = "lm_head",
             .positions = ""};
  // No layer uses this rope.
  REDLINE_ASSIGN(c.rope, read_rope_config(nlohmann::json::object(), 2, c.max_positions));
  c.unrotated.assign(static_cast<size_t>(c.num_layers), true);
  const auto layer = [&](LayerBuilder& b, Value x) {
    return add(b.graph(), x, mamba2_mixer(b, b.norm(x, "norm", c.hidden_size), "mixer", m));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("mamba2", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

std::vector<GgufForm> mamba2_gguf_parts(const Checkpoint& checkpoint, const DecoderConfig&, std::string_view name) {
  ConfigReader r(checkpoint.config);
  return {mamba2_gguf_form(checkpoint, name, "mixer", r.integer("n_groups", 1, kMamba2MaxWidth, 8))};
}

Status set_mamba2_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  REDLINE_ASSIGN(const Mamba2Mixer m, read_mixer(checkpoint, c.hidden_size));
  set.integer("feed_forward_length", 0);
  set.integer("attention.head_count", 0);
  return set_mamba2_mixer_keys(m, set);
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
             .is_recurrent = true,
             .read_keys = read_ssm_keys},
    .build = build_mamba2,
    .gguf_parts = mamba2_gguf_parts,
    .gguf_keys = set_mamba2_keys,
    .gguf_states_rope = true,
};

}  // namespace redline
