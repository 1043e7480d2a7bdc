// Qwen3-MoE: a Qwen3 with a mixture of experts in most layers (Yang et al. 2025, arXiv:2505.09388).
#include "models/llama.h"
#include "models/moe.h"

namespace redline {
namespace {

Result<LanguageModel> build_qwen3_moe(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config, {.num_kv_heads = 4, .max_positions = 32768}));
  ConfigReader r(checkpoint.config);
  // GGUF files do not state whether weights are normalized; llama.cpp does it in all of them.
  const MoeConfig moe = read_moe_config(r, checkpoint.gguf_names != nullptr);
  const bool bias = r.boolean("attention_bias", false);
  if (r.boolean("use_sliding_window", false) &&
      !(checkpoint.config.contains("sliding_window") && !r.has("sliding_window")))
    c.window.assign(c.window.size(), r.integer("sliding_window", 1, int64_t{1} << 40, 4096));
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(const std::vector<bool> sparse, read_sparse_layers(checkpoint.config, c.num_layers));
  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t, Value h) {
    const int64_t q_size = c.num_heads * c.head_dim, kv_size = c.num_kv_heads * c.head_dim;
    const Value q = b.project(h, "self_attn.q_proj", q_size, c.hidden_size, bias);
    const Value k = b.project(h, "self_attn.k_proj", kv_size, c.hidden_size, bias);
    const Value v = b.project(h, "self_attn.v_proj", kv_size, c.hidden_size, bias);
    const Value y = b.attend(b.rotate(b.norm(q, "self_attn.q_norm", c.head_dim)),
                             b.rotate(b.norm(k, "self_attn.k_norm", c.head_dim)), v);
    return b.project(y, "self_attn.o_proj", c.hidden_size, q_size, bias);
  };
  parts.mlp = [&](LayerBuilder& b, int64_t layer, Value x) {
    return sparse[static_cast<size_t>(layer)] ? moe_block(b, x, moe) : b.gated_mlp(x, false);
  };
  return build_llama_decoder("qwen3_moe", c, checkpoint, outputs, {}, parts);
}

Status set_qwen3_moe_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  ConfigReader r(checkpoint.config);
  const MoeConfig moe = read_moe_config(r, false);
  if (!moe.router.normalizes) return unsupported("GGUF has no key for norm_topk_prob of qwen3_moe");
  set_moe_keys(moe, set);
  return expect_all_sparse(checkpoint, c, "qwen3_moe");
}

constexpr GgufName kQwen3MoeGgufLayer[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};

}  // namespace

extern const ModelFamily kQwen3MoeFamily = {
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .gguf = {.architecture = "qwen3moe",
             .top = kLlamaGgufTop,
             .layer = kQwen3MoeGgufLayer,
             .more_layer = kGgufExperts,
             .has_experts = true},
    .build = build_qwen3_moe,
    .gguf_parts = moe_gguf_parts,
    .gguf_keys = set_qwen3_moe_keys,
};

}  // namespace redline
