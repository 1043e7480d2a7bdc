// OLMo (1): a Llama whose layer norms have neither factor nor bias (Groeneveld et al. 2024, arXiv:2402.00838); OLMoE:
// experts, and RMS norm of queries and keys over all heads (Muennighoff et al. 2024, arXiv:2409.02060); FlexOlmo: the
// same with norms after each block instead of before it (Shi et al. 2025, arXiv:2507.07024).
#include "graph/ops/add.h"
#include "models/blocks/moe.h"
#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

namespace redline {
namespace {

/// Refuses the limit of queries, keys and values.
void refuse_clip(ConfigReader& r) {
  if (r.has("clip_qkv")) r.fail(unsupported("config: clip_qkv, a limit of queries, keys and values"));
}

Result<LanguageModel> build_olmo(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config, {.max_positions = 2048}));
  c.norm = {.layer = true, .weight = false};
  c.rms_norm_eps = 1e-5f;
  ConfigReader r(checkpoint.config);
  const bool bias = r.boolean("attention_bias", false);
  refuse_clip(r);
  REDLINE_TRY(r.status());
  return build_llama_decoder("olmo", std::move(c), checkpoint, outputs, {.qkv = bias, .output = bias});
}

struct OlmoeConfig {
  DecoderConfig decoder;
  MoeConfig moe;
  SelfAttention attention;
};

Result<OlmoeConfig> read_olmoe(const nlohmann::json& config, const DecoderDefaults& defaults) {
  OlmoeConfig o;
  REDLINE_ASSIGN(o.decoder, read_decoder_config(config, defaults));
  ConfigReader r(config);
  o.moe = read_moe_config(r, false);
  const bool bias = r.boolean("attention_bias", false);
  o.attention = {.qkv_bias = bias, .output_bias = bias, .norm = QkNorm::kAllHeads};
  refuse_clip(r);
  REDLINE_TRY(r.status());
  return o;
}

Result<LanguageModel> build_olmoe(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(OlmoeConfig o,
                 read_olmoe(with_defaults(checkpoint.config, {{"num_experts", 64}, {"num_experts_per_tok", 8}}),
                            {.max_positions = 4096, .norm_eps_value = 1e-5}));
  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t, Value x) { return self_attention(b, x, o.attention); };
  parts.mlp = [&](LayerBuilder& b, int64_t, Value x) { return moe_block(b, x, o.moe); };
  return build_llama_decoder("olmoe", o.decoder, checkpoint, outputs, {}, parts);
}

Result<LanguageModel> build_flex_olmo(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(const OlmoeConfig o, read_olmoe(with_defaults(with_rope_theta(checkpoint.config, 5e5),
                                                               {{"num_experts", 7}, {"num_experts_per_tok", 5}}),
                                                 {.max_positions = 4096}));
  DecoderConfig c = o.decoder;
  auto layer = [&](LayerBuilder& b, Value x) {
    const Value out = self_attention(b, x, o.attention);
    x = add(b.graph(), x, b.norm(out, "post_attention_layernorm", c.hidden_size));
    return add(b.graph(), x, b.norm(moe_block(b, x, o.moe), "post_feedforward_layernorm", c.hidden_size));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("flex_olmo", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

Status set_olmoe_keys(const Checkpoint& checkpoint, const DecoderConfig&, const GgufKeys& set) {
  const nlohmann::json config = with_defaults(checkpoint.config, {{"num_experts", 64}, {"num_experts_per_tok", 8}});
  ConfigReader r(config);
  const MoeConfig moe = read_moe_config(r, false);
  REDLINE_TRY(r.status());
  if (moe.router.normalizes) return unsupported("GGUF has no key for norm_topk_prob of olmoe");
  set.integer("expert_count", moe.router.num_experts);
  set.integer("expert_used_count", moe.router.experts_per_token);
  return {};
}

constexpr GgufName kOlmoeGgufLayer[] = {{"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
                                        {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
                                        {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
                                        {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"}};

}  // namespace

extern const ModelFamily kOlmoFamily = {
    .model_type = "olmo",
    .architecture = "OlmoForCausalLM",
    .gguf = {.architecture = "olmo",
             .top = kLlamaGgufTop,
             .layer = kGgufProjections,
             .interleaves_rope = true,
             .read_keys = [](GgufKeyReader& keys) { keys.number("attention.clamp_kqv", "clip_qkv"); }},
    .build = build_olmo,
};

extern const ModelFamily kOlmoeFamily = {
    .model_type = "olmoe",
    .architecture = "OlmoeForCausalLM",
    .gguf = {.architecture = "olmoe",
             .top = kLlamaGgufTop,
             .layer = kOlmoeGgufLayer,
             .more_layer = kGgufExperts,
             .has_experts = true,
             .read_keys = read_moe_keys},
    .build = build_olmoe,
    .gguf_parts = moe_gguf_parts,
    .gguf_keys = set_olmoe_keys,
};

extern const ModelFamily kFlexOlmoFamily = {
    .model_type = "flex_olmo",
    .architecture = "FlexOlmoForCausalLM",
    .gguf = {},
    .build = build_flex_olmo,
};

}  // namespace redline
