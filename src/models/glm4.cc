// GLM-4 (0414): norms before and after each block, biases on queries, keys and values, rope on half of each head with
// neighbouring elements as pairs (GLM Team 2024, arXiv:2406.12793).
#include "graph/ops/add.h"
#include "models/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_glm4(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  nlohmann::json config = checkpoint.config;
  const auto parameters = config.find("rope_parameters");
  const bool stated =
      parameters != config.end() && parameters->is_object() && parameters->contains("partial_rotary_factor");
  if (!checkpoint.gguf_names && !stated && !config.contains("partial_rotary_factor"))
    config["partial_rotary_factor"] = 0.5;
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
    const int64_t q_size = c.num_heads * c.head_dim, kv_size = c.num_kv_heads * c.head_dim;
    const Value q = b.rotate(b.project_heads(h, "self_attn.q_proj", c.num_heads, bias));
    const Value k = b.rotate(b.project_heads(h, "self_attn.k_proj", c.num_kv_heads, bias));
    const Value v = b.project(h, "self_attn.v_proj", kv_size, c.hidden_size, bias);
    const Value out = b.project(b.attend(q, k, v), "self_attn.o_proj", c.hidden_size, q_size, false);
    x = add(b.graph(), x, b.norm(out, "post_self_attn_layernorm", c.hidden_size));
    const Value inner = b.joint_gated_mlp(b.norm(x, "post_attention_layernorm", c.hidden_size));
    return add(b.graph(), x, b.norm(inner, "post_mlp_layernorm", c.hidden_size));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("glm4", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

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
    .build = build_glm4,
};

}  // namespace redline
