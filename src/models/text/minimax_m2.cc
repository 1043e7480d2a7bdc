// MiniMax-M2: experts chosen by sigmoid scores with a correction bias in all layers, RMS norm of queries and keys over
// all heads, and rope on a part of each head (MiniMax 2025).
#include "models/blocks/moe.h"
#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

namespace redline {
namespace {

constexpr double kMinimaxTheta = 5e6;

/// Returns the config with partial_rotary_factor for the key "rotary_dim" of the published models.
nlohmann::json minimax_m2_common_config(const nlohmann::json& own) {
  nlohmann::json config = with_rope_theta(own, kMinimaxTheta);
  const auto rotary = own.find("rotary_dim");
  const double head_dim = own.contains("head_dim") && own["head_dim"].is_number() ? own["head_dim"].get<double>() : 128;
  if (rotary == own.end() || !rotary->is_number() || head_dim <= 0) return config;
  // The offset keeps the truncated product with head_dim from being one too small.
  const double size = rotary->get<double>();
  return with_partial_rotary_factor(std::move(config), size == head_dim ? 1.0 : (size + 1e-6) / head_dim);
}

MoeConfig read_minimax_m2_experts(ConfigReader& r) {
  MoeConfig moe = read_moe_config(r, true);
  moe.router.normalizes = true;
  moe.router.score = RouterScore::kSigmoid;
  moe.router.scale = 1;
  moe.has_correction_bias = true;
  return moe;
}

Result<LanguageModel> build_minimax_m2(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const nlohmann::json config = checkpoint.gguf_names
                                    ? checkpoint.config
                                    : with_defaults(minimax_m2_common_config(checkpoint.config),
                                                    {{"num_local_experts", 256}, {"num_experts_per_tok", 8}});
  REDLINE_ASSIGN(DecoderConfig c,
                 read_decoder_config(config, {.head_dim = 128, .num_kv_heads = 8, .max_positions = 196608}));
  ConfigReader r(config);
  const MoeConfig moe = read_minimax_m2_experts(r);
  REDLINE_TRY(r.status());
  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t layer, Value x) {
    if (layer == 0) ignore_layers_beyond(b, checkpoint);
    return self_attention(b, x, {.norm = QkNorm::kAllHeads});
  };
  parts.mlp = [&](LayerBuilder& b, int64_t, Value x) {
    // Published files have the names of Mixtral, GGUF files and those of some converters the usual ones.
    static const MoeNames kPublished = {.router = "block_sparse_moe.gate",
                                        .correction = "block_sparse_moe.e_score_correction",
                                        .experts = "block_sparse_moe.experts",
                                        .gate = "w1",
                                        .up = "w3",
                                        .down = "w2"};
    static const MoeNames kUsual = {.correction = "mlp.e_score_correction"};
    return moe_block(b, x, moe, b.weights().has(b.scope() + "mlp.gate.weight") ? kUsual : kPublished);
  };
  return build_llama_decoder("minimax_m2", c, checkpoint, outputs, {}, parts);
}

Status set_minimax_m2_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  const nlohmann::json config =
      with_defaults(checkpoint.config, {{"num_local_experts", 256}, {"num_experts_per_tok", 8}});
  ConfigReader r(config);
  const MoeConfig moe = read_minimax_m2_experts(r);
  REDLINE_TRY(r.status());
  constexpr int64_t kGgufSigmoid = 2;
  set.integer("expert_count", moe.router.num_experts);
  set.integer("expert_used_count", moe.router.experts_per_token);
  set.integer("expert_feed_forward_length", c.intermediate_size);
  set.integer("expert_gating_func", kGgufSigmoid);
  return {};
}

std::vector<GgufForm> minimax_m2_gguf_parts(const Checkpoint& checkpoint, const DecoderConfig& c,
                                            std::string_view name) {
  constexpr std::string_view kModule = ".block_sparse_moe.";
  const size_t at = name.find(kModule);
  if (at == std::string_view::npos) return moe_gguf_parts(checkpoint, c, name);
  std::string own = std::string(name.substr(0, at)) + ".mlp." + std::string(name.substr(at + kModule.size()));
  for (const auto& [from, to] : {std::pair{".w1.", ".gate_proj."}, {".w3.", ".up_proj."}, {".w2.", ".down_proj."}})
    if (const size_t part = own.find(from); part != std::string::npos) own.replace(part, 4, to);
  if (own.ends_with("e_score_correction_bias")) own.replace(own.size() - 5, 5, ".bias");
  return {{.name = own}};
}

constexpr GgufName kMinimaxM2GgufLayer[] = {
    {"attn_norm", "input_layernorm"},         {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},           {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},      {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},      {"ffn_norm", "post_attention_layernorm"},
    {"exp_probs_b", "mlp.e_score_correction"}};

}  // namespace

extern const ModelFamily kMinimaxM2Family = {
    .model_type = "minimax_m2",
    .architecture = "MiniMaxM2ForCausalLM",
    .gguf = {.architecture = "minimax-m2",
             .top = kLlamaGgufTop,
             .layer = kMinimaxM2GgufLayer,
             .more_layer = kGgufExperts,
             .has_experts = true,
             .read_keys = read_moe_keys},
    .build = build_minimax_m2,
    .common_config = minimax_m2_common_config,
    .gguf_parts = minimax_m2_gguf_parts,
    .gguf_keys = set_minimax_m2_keys,
};

}  // namespace redline
