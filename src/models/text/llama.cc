// Llama 1, 2 and 3.x, SmolLM2: pre-norm decoder, rope, grouped-query attention, SwiGLU (Touvron et al. 2023,
// arXiv:2302.13971; Llama 3: arXiv:2407.21783).
#include "models/text/llama.h"

#include "graph/ops/layer_norm.h"

namespace redline {

Value head_layer_norm(LayerBuilder& b, Value heads, Value weight, Value bias) {
  const DecoderConfig& c = b.config();
  return layer_norm(b.graph(), heads, weight, bias, {.eps = c.rms_norm_eps, .group = c.head_dim});
}

Value self_attention(LayerBuilder& b, Value h, const SelfAttention& a) {
  const DecoderConfig& c = b.config();
  const int64_t q_size = c.num_heads * c.head_dim, kv_size = c.num_kv_heads * c.head_dim;
  const auto finish = [&](Value x, const char* norm, int64_t size, bool is_query) {
    const auto rotate = [&](Value heads) { return is_query ? b.rotate_queries(heads) : b.rotate(heads); };
    if (a.own_norm) return rotate(a.own_norm(b, x, is_query));
    if (a.norm == QkNorm::kNone) return rotate(x);
    const int64_t normed = a.norm == QkNorm::kHead ? c.head_dim : size;
    return a.norms_after_rope ? b.norm(rotate(x), norm, normed) : rotate(b.norm(x, norm, normed));
  };
  const Value q = b.project_heads(h, a.q, c.num_heads, a.qkv_bias);
  const Value k = b.project_heads(h, a.k, c.num_kv_heads, a.qkv_bias);
  const Value v = b.project(h, a.v, kv_size, c.hidden_size, a.qkv_bias);
  const Value sinks = a.sinks ? b.weights().take(b.scope() + a.sinks, {c.num_heads}) : Value{};
  const Value y = b.attend(finish(q, a.q_norm, q_size, true), finish(k, a.k_norm, kv_size, false), v, {.sinks = sinks});
  return b.project(y, a.output, c.hidden_size, q_size, a.output_bias);
}

Result<LanguageModel> build_llama_decoder(std::string name, DecoderConfig c, const Checkpoint& checkpoint,
                                          const DecoderOutputs& outputs, LlamaBiases biases, const LayerParts& parts) {
  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    x = b.residual(x, parts.mixer ? parts.mixer(b, b.layer(), h)
                                  : self_attention(b, h, {.qkv_bias = biases.qkv, .output_bias = biases.output}));
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
