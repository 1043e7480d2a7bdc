// GLM-4 (GLM Team 2024, arXiv:2406.12793): biases on queries, keys and values, rope on half of each head with
// neighbouring elements as pairs, gate and up in one weight. The release 0414 also has norms after each block.
#include "graph/ops/add.h"
#include "models/blocks/rope_config.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_glm(const char* name, bool has_post_norms, const Checkpoint& checkpoint,
                                const DecoderOutputs& outputs) {
  const nlohmann::json config =
      checkpoint.gguf_names ? checkpoint.config : with_partial_rotary_factor(checkpoint.config, 0.5);
  REDLINE_ASSIGN(
      DecoderConfig c,
      read_decoder_config(config,
                          {.head_dim = 128, .num_kv_heads = 2, .max_positions = 131072, .norm_eps_value = 1.5625e-07}));
  c.interleaved_rope = true;
  ConfigReader r(config);
  const bool bias = r.boolean("attention_bias", true);
  REDLINE_TRY(r.status());

  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    const Value out = self_attention(b, h, {.qkv_bias = bias});
    const auto after = [&](Value y, const char* norm) { return has_post_norms ? b.norm(y, norm, c.hidden_size) : y; };
    x = add(b.graph(), x, after(out, "post_self_attn_layernorm"));
    const Value inner = b.joint_gated_mlp(b.norm(x, "post_attention_layernorm", c.hidden_size));
    return add(b.graph(), x, after(inner, "post_mlp_layernorm"));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder(name, c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

// The norms after the blocks are in files of GLM-4 (0414) only.

constexpr GgufName kGlm4GgufLayer[] = {{"attn_norm", "input_layernorm"},
                                       {"attn_q", "self_attn.q_proj"},
                                       {"attn_k", "self_attn.k_proj"},
                                       {"attn_v", "self_attn.v_proj"},
                                       {"attn_output", "self_attn.o_proj"},
                                       {"post_attention_norm", "post_self_attn_layernorm"},
                                       {"ffn_norm", "post_attention_layernorm"},
                                       {"ffn_up", "mlp.gate_up_proj"},
                                       {"ffn_down", "mlp.down_proj"},
                                       {"post_ffw_norm", "post_mlp_layernorm"}};

}  // namespace

extern const ModelFamily kGlm4Family = {
    .model_type = "glm4",
    .architecture = "Glm4ForCausalLM",
    .gguf = {.architecture = "glm4", .top = kLlamaGgufTop, .layer = kGlm4GgufLayer},
    .build = [](const Checkpoint& checkpoint,
                const DecoderOutputs& outputs) { return build_glm("glm4", true, checkpoint, outputs); },
};

extern const ModelFamily kGlmFamily = {
    .model_type = "glm",
    .architecture = "GlmForCausalLM",
    .gguf = {.architecture = "chatglm", .top = kLlamaGgufTop, .layer = kGlm4GgufLayer},
    .build = [](const Checkpoint& checkpoint,
                const DecoderOutputs& outputs) { return build_glm("glm", false, checkpoint, outputs); },
};

}  // namespace redline
