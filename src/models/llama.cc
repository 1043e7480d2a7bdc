// Llama 1, 2 and 3.x, SmolLM2: pre-norm decoder, rope, grouped-query attention, SwiGLU (Touvron et al. 2023,
// arXiv:2302.13971; Llama 3: arXiv:2407.21783).
#include "graph/ops/add.h"
#include "models/registry.h"

namespace redline {

Result<LanguageModel> build_llama_decoder(std::string name, DecoderConfig c, const Checkpoint& checkpoint,
                                          LlamaBiases biases) {
  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    const int64_t q_size = c.num_heads * c.head_dim, kv_size = c.num_kv_heads * c.head_dim;
    const Value q = b.rotate(b.project(h, "self_attn.q_proj", q_size, c.hidden_size, biases.qkv));
    const Value k = b.rotate(b.project(h, "self_attn.k_proj", kv_size, c.hidden_size, biases.qkv));
    const Value v = b.project(h, "self_attn.v_proj", kv_size, c.hidden_size, biases.qkv);
    x = add(b.graph(), x, b.project(b.attend(q, k, v), "self_attn.o_proj", c.hidden_size, q_size, biases.output));
    return add(b.graph(), x, b.gated_mlp(b.norm(x, "post_attention_layernorm", c.hidden_size), biases.mlp));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder(std::move(name), c, checkpoint, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

Result<LanguageModel> build_llama(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config));
  ConfigReader r(checkpoint.config);
  const bool attention_bias = r.boolean("attention_bias", false), mlp_bias = r.boolean("mlp_bias", false);
  // GGUF files of Mistral models call themselves llama and carry the window; Hugging Face's llama has none.
  if (checkpoint.format == "gguf" && r.has("sliding_window"))
    c.window.assign(c.window.size(), r.integer("sliding_window", 1, int64_t{1} << 40));
  REDLINE_TRY(r.status());
  return build_llama_decoder("llama", std::move(c), checkpoint, {attention_bias, attention_bias, mlp_bias});
}

}  // namespace redline
