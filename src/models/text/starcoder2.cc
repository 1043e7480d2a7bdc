// StarCoder2: layer norms and projections with biases, a feed-forward of two matrices with GELU, a window in all layers
// (Lozhkov et al. 2024, arXiv:2402.19173).
#include "graph/ops/add.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_starcoder2(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config, {.num_kv_heads = 2,
                                                                          .max_positions = 4096,
                                                                          .tied = true,
                                                                          .activation = Activation::kGeluTanh,
                                                                          .any_activation = true,
                                                                          .norm_eps = "norm_epsilon",
                                                                          .norm_eps_value = 1e-5}));
  c.norm = {.layer = true, .bias = true};
  ConfigReader r(checkpoint.config);
  const bool bias = r.boolean("use_bias", true);
  if (r.has("sliding_window")) c.window.assign(c.window.size(), r.integer("sliding_window", 1, int64_t{1} << 40));
  REDLINE_TRY(r.status());

  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    x = add(b.graph(), x, self_attention(b, h, {.qkv_bias = bias, .output_bias = bias}));
    const Value inner = b.norm(x, "post_attention_layernorm", c.hidden_size);
    return add(b.graph(), x, b.plain_mlp(inner, "mlp.c_fc", "mlp.c_proj", bias));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("starcoder2", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

constexpr GgufName kStarcoder2GgufLayer[] = {
    {"attn_norm", "input_layernorm"}, {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},   {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.c_fc"},           {"ffn_down", "mlp.c_proj"}};

}  // namespace

extern const ModelFamily kStarcoder2Family = {
    .model_type = "starcoder2",
    .architecture = "Starcoder2ForCausalLM",
    .gguf = {.architecture = "starcoder2", .top = kLlamaGgufTop, .layer = kStarcoder2GgufLayer},
    .build = build_starcoder2,
};

}  // namespace redline
