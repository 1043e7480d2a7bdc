// Granite 4, its dense models: Granite's factors, layers of attention or Mamba-2, mostly without rope, gate and up in
// one weight (IBM 2025, granite-4.0-micro and granite-4.0-h-micro).
#include <algorithm>

#include "models/llama.h"
#include "models/recurrent.h"

namespace redline {
namespace {

Result<std::vector<bool>> read_mamba_layers(const nlohmann::json& config, int64_t num_layers) {
  std::vector<bool> is_mamba(static_cast<size_t>(num_layers), true);
  auto types = config.find("layer_types");
  if (types == config.end()) types = config.find("layers_block_type");
  if (types == config.end() || types->is_null()) return is_mamba;
  if (!types->is_array() || types->size() != is_mamba.size())
    return invalid_argument("config: layer_types must list {} layers", num_layers);
  for (size_t i = 0; i < is_mamba.size(); ++i) {
    const nlohmann::json& type = (*types)[i];
    is_mamba[i] = type == "mamba" || type == "linear_attention";
    if (!is_mamba[i] && type != "attention" && type != "full_attention")
      return unsupported("config: layer_types[{}] is {}; Redline runs mamba and attention", i, type.dump());
  }
  return is_mamba;
}

Result<Mamba2Mixer> read_granite_mamba(const nlohmann::json& config, int64_t hidden_size) {
  constexpr int64_t kMaxWidth = int64_t{1} << 24;
  ConfigReader r(config);
  Mamba2Mixer m;
  const int64_t inner = r.integer("mamba_expand", 1, 1000, 2) * hidden_size;
  m.scan.num_heads = r.integer("mamba_n_heads", 1, kMaxWidth, 128);
  const auto head = config.find("mamba_d_head");
  const bool divides = head == config.end() || head->is_null() || *head == "auto";
  if (r.status().ok()) m.scan.value_dim = divides ? inner / m.scan.num_heads : r.integer("mamba_d_head", 1, kMaxWidth);
  m.scan.num_groups = r.integer("mamba_n_groups", 1, kMaxWidth, 1);
  m.scan.key_dim = r.integer("mamba_d_state", 1, kMaxWidth, 256);
  m.taps = r.integer("mamba_d_conv", 1, 64, 4);
  m.has_bias = r.boolean("mamba_proj_bias", false);
  m.has_conv_bias = r.boolean("mamba_conv_bias", true);
  REDLINE_TRY(r.status());
  REDLINE_TRY(read_step_limits(config, m.scan));
  REDLINE_TRY(check_mamba2_mixer(m, inner));
  return m;
}

Value attention_of_granite(LayerBuilder& b, Value x, bool bias) {
  const DecoderConfig& c = b.config();
  const int64_t q_size = c.num_heads * c.head_dim, kv_size = c.num_kv_heads * c.head_dim;
  const Value q = b.rotate(b.project(x, "self_attn.q_proj", q_size, c.hidden_size, bias));
  const Value k = b.rotate(b.project(x, "self_attn.k_proj", kv_size, c.hidden_size, bias));
  const Value v = b.project(x, "self_attn.v_proj", kv_size, c.hidden_size, bias);
  return b.project(b.attend(q, k, v), "self_attn.o_proj", c.hidden_size, q_size, bias);
}

/// Settings of the layers beyond those of a Granite.
struct GraniteHybridConfig {
  std::vector<bool> is_mamba;
  Mamba2Mixer mamba;
  int64_t intermediate_size = 0;
  bool rotates = false, has_bias = false;

  bool has_mamba() const { return std::find(is_mamba.begin(), is_mamba.end(), true) != is_mamba.end(); }
};

Result<GraniteHybridConfig> read_granite_hybrid(const Checkpoint& checkpoint, int64_t num_layers, int64_t hidden_size) {
  const nlohmann::json& config = checkpoint.config;
  ConfigReader r(config);
  GraniteHybridConfig h;
  for (const char* key : {"num_local_experts", "num_experts"})
    if (const int64_t experts = r.has(key) ? r.integer(key, 0, 4096) : 0; experts > 0)
      r.fail(
          unsupported("config: {} is {}; of granitemoehybrid Redline runs the models without experts", key, experts));
  h.has_bias = r.boolean("attention_bias", false);
  if (checkpoint.gguf_names) {
    h.intermediate_size = r.integer("intermediate_size", 1, int64_t{1} << 24);
    h.rotates = r.boolean("rope_finetuned", true);
    h.is_mamba.reserve(static_cast<size_t>(num_layers));
    for (int64_t i = 0; i < num_layers; ++i)
      h.is_mamba.push_back(checkpoint.tensors.count(fmt::format("model.layers.{}.mamba.in_proj.weight", i)) > 0);
  } else {
    h.intermediate_size = r.integer("shared_intermediate_size", 1, int64_t{1} << 24, 1024);
    const std::string positions = r.has("position_embedding_type") ? r.text("position_embedding_type", "") : "nope";
    if (positions != "rope" && positions != "nope")
      r.fail(unsupported("config: position_embedding_type \"{}\"; Redline runs rope and nope", positions));
    h.rotates = positions == "rope";
    REDLINE_TRY(r.status());
    REDLINE_ASSIGN(h.is_mamba, read_mamba_layers(config, num_layers));
  }
  REDLINE_TRY(r.status());
  if (!h.has_mamba()) return h;
  REDLINE_ASSIGN(h.mamba,
                 checkpoint.gguf_names ? read_gguf_mamba2_mixer(config) : read_granite_mamba(config, hidden_size));
  return h;
}

Result<LanguageModel> build_granite_hybrid(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config));
  REDLINE_TRY(read_granite_factors(checkpoint.config, c));
  REDLINE_ASSIGN(const GraniteHybridConfig h, read_granite_hybrid(checkpoint, c.num_layers, c.hidden_size));
  c.intermediate_size = h.intermediate_size;
  if (!h.rotates) c.unrotated.assign(static_cast<size_t>(c.num_layers), true);
  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t layer, Value x) {
    return h.is_mamba[static_cast<size_t>(layer)] ? mamba2_mixer(b, x, "mamba", h.mamba)
                                                  : attention_of_granite(b, x, h.has_bias);
  };
  parts.mlp = [&](LayerBuilder& b, int64_t, Value x) {
    return checkpoint.gguf_names ? b.gated_mlp(x, false)
                                 : b.joint_gated_mlp(x, "shared_mlp.input_linear", "shared_mlp.output_linear");
  };
  return build_llama_decoder("granitemoehybrid", std::move(c), checkpoint, {}, parts);
}

std::vector<GgufForm> granite_hybrid_gguf_parts(const Checkpoint& checkpoint, const DecoderConfig& c,
                                                std::string_view name) {
  const size_t at = name.find("shared_mlp.");
  if (at == std::string_view::npos) {
    ConfigReader r(checkpoint.config);
    return {mamba2_gguf_form(checkpoint, name, "mamba", r.integer("mamba_n_groups", 1, int64_t{1} << 24, 1))};
  }
  const std::string stem = std::string(name.substr(0, at)) + "mlp.";
  if (name.ends_with("output_linear.weight")) return {{.name = stem + "down_proj.weight"}};
  const int64_t columns = checkpoint.tensors.at(std::string(name)).view.shape.back();
  const auto half = [&](const char* part, int64_t first) {
    return GgufForm{.stored_row = [first](int64_t row) { return first + row; },
                    .name = stem + part,
                    .shape = {c.intermediate_size, columns}};
  };
  return {half("gate_proj.weight", 0), half("up_proj.weight", c.intermediate_size)};
}

Status set_granite_hybrid_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  REDLINE_ASSIGN(const GraniteHybridConfig h, read_granite_hybrid(checkpoint, c.num_layers, c.hidden_size));
  set.boolean("rope.scaling.finetuned", h.rotates);
  if (!h.has_mamba()) return {};
  std::vector<int32_t> heads;
  heads.reserve(h.is_mamba.size());
  for (const bool is_mamba : h.is_mamba) heads.push_back(is_mamba ? 0 : static_cast<int32_t>(c.num_kv_heads));
  set.integers("attention.head_count_kv", heads);
  return set_mamba2_mixer_keys(h.mamba, set);
}

// Files of the models without Mamba-2 are those of a Granite.
std::string_view granite_hybrid_architecture(const Checkpoint& checkpoint) {
  for (const auto& [name, source] : checkpoint.tensors)
    if (name.find(".mamba.") != std::string::npos) return "granitehybrid";
  return "granite";
}

constexpr GgufName kGgufMamba[] = {
    {"ssm_in", "mamba.in_proj"}, {"ssm_conv1d", "mamba.conv1d"}, {"ssm_dt", "mamba.dt"},       {"ssm_a", "mamba.A"},
    {"ssm_d", "mamba.D"},        {"ssm_norm", "mamba.norm"},     {"ssm_out", "mamba.out_proj"}};

}  // namespace

extern const ModelFamily kGraniteHybridFamily = {
    .model_type = "granitemoehybrid",
    .architecture = "GraniteMoeHybridForCausalLM",
    .gguf = {.architecture = "granitehybrid",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .more_layer = kGgufMamba,
             .interleaves_rope = true,
             .is_recurrent = true},
    .build = build_granite_hybrid,
    .gguf_numbers = granite_gguf_numbers,
    .gguf_parts = granite_hybrid_gguf_parts,
    .gguf_keys = set_granite_hybrid_keys,
    .gguf_architecture = granite_hybrid_architecture,
    .gguf_states_rope = true,
};

}  // namespace redline
