// Llama 1, 2 and 3.x, SmolLM2: pre-norm decoder, rope, grouped-query attention, SwiGLU (Touvron et al. 2023,
// arXiv:2302.13971; Llama 3: arXiv:2407.21783).
#include "models/llama.h"

namespace redline {

namespace {

Value attention_of(LayerBuilder& b, Value h, const LlamaBiases& biases) {
  const DecoderConfig& c = b.config();
  const int64_t q_size = c.num_heads * c.head_dim, kv_size = c.num_kv_heads * c.head_dim;
  const Value q = b.rotate(b.project(h, "self_attn.q_proj", q_size, c.hidden_size, biases.qkv));
  const Value k = b.rotate(b.project(h, "self_attn.k_proj", kv_size, c.hidden_size, biases.qkv));
  const Value v = b.project(h, "self_attn.v_proj", kv_size, c.hidden_size, biases.qkv);
  return b.project(b.attend(q, k, v), "self_attn.o_proj", c.hidden_size, q_size, biases.output);
}

}  // namespace

Result<LanguageModel> build_llama_decoder(std::string name, DecoderConfig c, const Checkpoint& checkpoint,
                                          const DecoderOutputs& outputs, LlamaBiases biases, const LayerParts& parts) {
  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    x = b.residual(x, parts.mixer ? parts.mixer(b, b.layer(), h) : attention_of(b, h, biases));
    const Value inner = b.norm(x, "post_attention_layernorm", c.hidden_size);
    return b.residual(x, parts.mlp ? parts.mlp(b, b.layer(), inner) : b.gated_mlp(inner, biases.mlp));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder(std::move(name), c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

namespace {

Result<LanguageModel> build_llama(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config));
  ConfigReader r(checkpoint.config);
  const bool attention_bias = r.boolean("attention_bias", false), mlp_bias = r.boolean("mlp_bias", false);
  // GGUF files of Mistral models have the architecture llama and a window; the config.json of a Llama has none.
  if (checkpoint.sliding_window) c.window.assign(c.window.size(), *checkpoint.sliding_window);
  REDLINE_TRY(r.status());
  return build_llama_decoder("llama", std::move(c), checkpoint, outputs, {attention_bias, attention_bias, mlp_bias});
}

}  // namespace

extern const ModelFamily kLlamaFamily = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .gguf = {.architecture = "llama",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .interleaves_rope = true,
             .window_every = 1,
             .quantize = {.is_large_at_80_layers = true}},
    .build = build_llama,
};

}  // namespace redline
