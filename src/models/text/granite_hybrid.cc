// Granite 4: Granite's factors, layers of attention or Mamba-2, mostly without rope, and an MLP with gate and up in one
// weight, in larger models together with a mixture of experts (IBM 2025, granite-4.0-micro, granite-4.0-h-micro and
// granite-4.0-h-tiny).
#include <algorithm>

#include "models/blocks/recurrent.h"
#include "models/text/granite.h"
#include "models/text/llama.h"

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

/// Settings of the layers beyond those of a Granite.
struct GraniteHybridConfig {
  std::vector<bool> is_mamba;
  Mamba2Mixer mamba;
  std::optional<MoeConfig> moe;
  int64_t intermediate_size = 0;  ///< width of the MLP; in a model with experts, width of one expert
  bool rotates = false, has_bias = false;

  bool has_mamba() const { return std::find(is_mamba.begin(), is_mamba.end(), true) != is_mamba.end(); }
};

Result<GraniteHybridConfig> read_granite_hybrid(const Checkpoint& checkpoint, int64_t num_layers, int64_t hidden_size) {
  const nlohmann::json& config = checkpoint.config;
  ConfigReader r(config);
  GraniteHybridConfig h;
  REDLINE_ASSIGN(h.moe, read_granite_moe(checkpoint));
  h.has_bias = r.boolean("attention_bias", false);
  if (checkpoint.gguf_names) {
    h.intermediate_size = r.integer("intermediate_size", 1, int64_t{1} << 24);
    h.rotates = r.boolean("rope_finetuned", true);
    h.is_mamba.reserve(static_cast<size_t>(num_layers));
    for (int64_t i = 0; i < num_layers; ++i)
      h.is_mamba.push_back(checkpoint.tensors.count(fmt::format("model.layers.{}.mamba.in_proj.weight", i)) > 0);
  } else {
    const int64_t shared = r.integer("shared_intermediate_size", 1, int64_t{1} << 24, 1024);
    if (h.moe) h.moe->shared_intermediate_size = shared;
    h.intermediate_size = h.moe ? h.moe->intermediate_size : shared;
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

Result<LanguageModel> build_granite_hybrid(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config));
  REDLINE_TRY(read_granite_factors(checkpoint.config, c));
  REDLINE_ASSIGN(GraniteHybridConfig h, read_granite_hybrid(checkpoint, c.num_layers, c.hidden_size));
  c.intermediate_size = h.intermediate_size;
  if (h.moe) h.moe->activation = c.activation;
  if (!h.rotates) c.unrotated.assign(static_cast<size_t>(c.num_layers), true);
  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t layer, Value x) {
    return h.is_mamba[static_cast<size_t>(layer)]
               ? mamba2_mixer(b, x, "mamba", h.mamba)
               : self_attention(b, x, {.qkv_bias = h.has_bias, .output_bias = h.has_bias});
  };
  parts.mlp = [&](LayerBuilder& b, int64_t, Value x) {
    if (h.moe) return granite_moe_block(b, x, *h.moe);
    return checkpoint.gguf_names ? b.gated_mlp(x, false)
                                 : b.joint_gated_mlp(x, "shared_mlp.input_linear", "shared_mlp.output_linear");
  };
  return build_llama_decoder("granitemoehybrid", std::move(c), checkpoint, outputs, {}, parts);
}

bool has_granite_experts(const Checkpoint& checkpoint) {
  ConfigReader r(checkpoint.config);
  return granite_num_experts(r) > 0;
}

std::vector<GgufForm> granite_hybrid_gguf_parts(const Checkpoint& checkpoint, const DecoderConfig&,
                                                std::string_view name) {
  if (auto parts = granite_moe_gguf_parts(checkpoint, has_granite_experts(checkpoint), name)) return *std::move(parts);
  ConfigReader r(checkpoint.config);
  return {mamba2_gguf_form(checkpoint, name, "mamba", r.integer("mamba_n_groups", 1, int64_t{1} << 24, 1))};
}

Status set_granite_hybrid_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  REDLINE_ASSIGN(const GraniteHybridConfig h, read_granite_hybrid(checkpoint, c.num_layers, c.hidden_size));
  set.boolean("rope.scaling.finetuned", h.rotates);
  if (h.moe) set_granite_moe_keys(*h.moe, set);
  if (!h.has_mamba()) return {};
  std::vector<int32_t> heads;
  heads.reserve(h.is_mamba.size());
  for (const bool is_mamba : h.is_mamba) heads.push_back(is_mamba ? 0 : static_cast<int32_t>(c.num_kv_heads));
  set.integers("attention.head_count_kv", heads);
  return set_mamba2_mixer_keys(h.mamba, set);
}

// Returns the architecture: models without Mamba-2 are written as Granite or GraniteMoe.
std::string_view granite_hybrid_architecture(const Checkpoint& checkpoint) {
  for (const auto& [name, source] : checkpoint.tensors)
    if (name.find(".mamba.") != std::string::npos) return "granitehybrid";
  return has_granite_experts(checkpoint) ? "granitemoe" : "granite";
}

constexpr GgufName kGgufMixers[] = {{"ssm_in", "mamba.in_proj"},
                                    {"ssm_conv1d", "mamba.conv1d"},
                                    {"ssm_dt", "mamba.dt"},
                                    {"ssm_a", "mamba.A"},
                                    {"ssm_d", "mamba.D"},
                                    {"ssm_norm", "mamba.norm"},
                                    {"ssm_out", "mamba.out_proj"},
                                    {"ffn_gate_inp", "mlp.gate"},
                                    {"ffn_gate_exps", "mlp.experts.gate_proj"},
                                    {"ffn_up_exps", "mlp.experts.up_proj"},
                                    {"ffn_down_exps", "mlp.experts.down_proj"},
                                    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                    {"ffn_down_shexp", "mlp.shared_expert.down_proj"}};

void read_granite_hybrid_keys(GgufKeyReader& keys) {
  read_granite_keys(keys);
  read_moe_keys(keys);
  read_ssm_keys(keys);
}

}  // namespace

extern const ModelFamily kGraniteHybridFamily = {
    .model_type = "granitemoehybrid",
    .architecture = "GraniteMoeHybridForCausalLM",
    .gguf = {.architecture = "granitehybrid",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .more_layer = kGgufMixers,
             .interleaves_rope = true,
             .is_recurrent = true,
             .read_keys = read_granite_hybrid_keys},
    .build = build_granite_hybrid,
    .gguf_numbers = granite_gguf_numbers,
    .gguf_parts = granite_hybrid_gguf_parts,
    .gguf_keys = set_granite_hybrid_keys,
    .gguf_architecture = granite_hybrid_architecture,
    .gguf_states_rope = true,
};

}  // namespace redline
