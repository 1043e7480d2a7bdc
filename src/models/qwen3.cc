// Qwen3: RMS norm of queries and keys per head before rope (Yang et al. 2025, arXiv:2505.09388).
#include "graph/ops/add.h"
#include "models/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_qwen3(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config, {.head_dim = 128, .max_positions = 32768}));
  REDLINE_ASSIGN(c.window, read_layer_windows(checkpoint.config, c.num_layers));
  ConfigReader r(checkpoint.config);
  const bool bias = r.boolean("attention_bias", false);
  REDLINE_TRY(r.status());

  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    const int64_t q_size = c.num_heads * c.head_dim, kv_size = c.num_kv_heads * c.head_dim;
    const Value q = b.project(h, "self_attn.q_proj", q_size, c.hidden_size, bias);
    const Value k = b.project(h, "self_attn.k_proj", kv_size, c.hidden_size, bias);
    const Value v = b.project(h, "self_attn.v_proj", kv_size, c.hidden_size, bias);
    const Value y = b.attend(b.rotate(b.norm(q, "self_attn.q_norm", c.head_dim)),
                             b.rotate(b.norm(k, "self_attn.k_norm", c.head_dim)), v);
    x = add(b.graph(), x, b.project(y, "self_attn.o_proj", c.hidden_size, q_size, bias));
    return add(b.graph(), x, b.gated_mlp(b.norm(x, "post_attention_layernorm", c.hidden_size), false));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("qwen3", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

// "cls.output": rows of the output matrix, in files of rerankers.
constexpr GgufName kQwen3GgufTop[] = {{"token_embd", "model.embed_tokens"},
                                      {"output_norm", "model.norm"},
                                      {"output", "lm_head"},
                                      {"cls.output", "score"}};
constexpr GgufName kGgufHeadNorms[] = {{"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"}};

}  // namespace

extern const ModelFamily kQwen3Family = {
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .gguf = {.architecture = "qwen3", .top = kQwen3GgufTop, .layer = kLlamaGgufLayer, .more_layer = kGgufHeadNorms},
    .build = build_qwen3,
};

}  // namespace redline
