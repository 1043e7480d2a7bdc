// ERNIE 4.5 with experts: a choice by softmax scores with a correction bias, and experts of all tokens (Baidu 2025).
#include "models/blocks/moe.h"
#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

namespace redline {
namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 24;

/// Settings of the layers with experts: `first` to `last`, every `interval`-th.
struct Ernie45Experts {
  MoeConfig moe;
  int64_t first = 1, last = 0, interval = 1;

  bool has_experts(int64_t layer) const { return (layer + 1) % interval == 0 && layer >= first && layer <= last; }
};

Ernie45Experts read_ernie_experts(ConfigReader& r, const Checkpoint& checkpoint, int64_t num_layers) {
  Ernie45Experts e;
  MoeConfig& moe = e.moe;
  const bool is_gguf = checkpoint.gguf_names != nullptr;
  moe.router.num_experts = r.integer(is_gguf ? "num_experts" : "moe_num_experts", 1, 4096, 64);
  moe.router.experts_per_token =
      r.integer(is_gguf ? "num_experts_per_tok" : "moe_k", 1, moe.router.num_experts, is_gguf ? 1 : 6);
  moe.router.normalizes = true;
  moe.intermediate_size = r.integer("moe_intermediate_size", 1, kMaxWidth, 1536);
  moe.has_correction_bias = true;
  moe.shared_intermediate_size = is_gguf ? r.integer("shared_expert_intermediate_size", 0, kMaxWidth, 0)
                                         : r.integer("moe_num_shared_experts", 0, 1000, 2) * moe.intermediate_size;
  e.first = r.integer(is_gguf ? "first_k_dense_replace" : "moe_layer_start_index", 0, num_layers, 1);
  e.last = r.integer("moe_layer_end_index", -1, 1 << 20, -1);
  if (e.last < 0) e.last = num_layers - 1;
  e.interval = r.integer("moe_layer_interval", 1, 1000, 1);
  return e;
}

Result<LanguageModel> build_ernie4_5_moe(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(
      DecoderConfig c,
      read_decoder_config(with_rope_theta(checkpoint.config, 5e5),
                          {.num_kv_heads = 4, .max_positions = 131072, .tied = true, .norm_eps_value = 1e-5}));
  c.interleaved_rope = true;
  ConfigReader r(checkpoint.config);
  const Ernie45Experts e = read_ernie_experts(r, checkpoint, c.num_layers);
  const bool bias = r.boolean("use_bias", false);
  if (bias) r.fail(unsupported("config: use_bias of ERNIE 4.5 with experts"));
  REDLINE_TRY(r.status());
  MoeNames names;
  names.shared = "mlp.shared_experts";
  LayerParts parts;
  parts.mlp = [&](LayerBuilder& b, int64_t layer, Value x) {
    if (layer == 0)  // the layers that predict further tokens are not run
      for (const auto& [name, source] : checkpoint.tensors)
        if (name.starts_with("model.mtp_")) b.weights().ignore(name);
    if (!e.has_experts(layer)) return b.gated_mlp(x, false);
    MoeNames own = names;
    // The bias is [1, experts] in a module of its own.
    own.correction = checkpoint.gguf_names ? "mlp.moe_statics.e_score_correction" : names.correction;
    for (const char* module : {"mlp.moe_statics.e_score_correction", "mlp.gate.moe_statics.e_score_correction"})
      if (b.weights().has(b.scope() + module + "_bias")) own.correction = module;
    return moe_block(b, x, e.moe, own);
  };
  return build_llama_decoder("ernie4_5_moe", std::move(c), checkpoint, outputs, {}, parts);
}

Status set_ernie_moe_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  ConfigReader r(checkpoint.config);
  const Ernie45Experts e = read_ernie_experts(r, checkpoint, c.num_layers);
  REDLINE_TRY(r.status());
  if (e.last != c.num_layers - 1) return unsupported("GGUF has no key for moe_layer_end_index of ernie4_5_moe");
  set_moe_keys(e.moe, set);
  set.integer("expert_shared_count", e.moe.shared_intermediate_size / e.moe.intermediate_size);
  set.integer("leading_dense_block_count", e.first);
  set.integer("interleave_moe_layer_step", e.interval);
  return {};
}

std::vector<GgufForm> ernie_moe_gguf_parts(const Checkpoint& checkpoint, const DecoderConfig& c,
                                           std::string_view name) {
  if (name.starts_with("model.mtp_")) return {};
  constexpr std::string_view kBias = "moe_statics.e_score_correction_bias";
  if (!name.ends_with(kBias)) return moe_gguf_parts(checkpoint, c, name);
  const std::vector<int64_t>& shape = checkpoint.tensors.at(std::string(name)).view.shape;
  const size_t at = name.find("mlp.");
  return {
      {.name = std::string(name.substr(0, at)) + "mlp.moe_statics.e_score_correction.bias", .shape = {shape.back()}}};
}

void read_ernie_moe_keys(GgufKeyReader& keys) {
  read_moe_keys(keys);
  keys.integer("interleave_moe_layer_step", "moe_layer_interval");
}

constexpr GgufName kErnieGgufExperts[] = {{"ffn_gate_inp", "mlp.gate"},
                                          {"exp_probs_b", "mlp.moe_statics.e_score_correction"},
                                          {"ffn_gate_exps", "mlp.experts.gate_proj"},
                                          {"ffn_up_exps", "mlp.experts.up_proj"},
                                          {"ffn_down_exps", "mlp.experts.down_proj"},
                                          {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                                          {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                                          {"ffn_down_shexp", "mlp.shared_experts.down_proj"}};

}  // namespace

extern const ModelFamily kErnie45MoeFamily = {
    .model_type = "ernie4_5_moe",
    .architecture = "Ernie4_5_MoeForCausalLM",
    .gguf = {.architecture = "ernie4_5-moe",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .more_layer = kErnieGgufExperts,
             .has_experts = true,
             .read_keys = read_ernie_moe_keys},
    .build = build_ernie4_5_moe,
    .gguf_parts = ernie_moe_gguf_parts,
    .gguf_keys = set_ernie_moe_keys,
};

}  // namespace redline
