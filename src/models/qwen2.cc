// Qwen2 and Qwen2.5: a Llama with biases on queries, keys and values, and sliding windows in some layers (Yang et al.
// 2024, arXiv:2407.10671).
#include "graph/ops/add.h"
#include "models/registry.h"

namespace redline {

Result<LanguageModel> build_qwen2(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config, {.max_positions = 32768}));
  REDLINE_ASSIGN(c.window, read_layer_windows(checkpoint.config, c.num_layers));

  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    const int64_t q_size = c.num_heads * c.head_dim, kv_size = c.num_kv_heads * c.head_dim;
    const Value q = b.rotate(b.project(h, "self_attn.q_proj", q_size, c.hidden_size, true));
    const Value k = b.rotate(b.project(h, "self_attn.k_proj", kv_size, c.hidden_size, true));
    const Value v = b.project(h, "self_attn.v_proj", kv_size, c.hidden_size, true);
    x = add(b.graph(), x, b.project(b.attend(q, k, v), "self_attn.o_proj", c.hidden_size, q_size, false));
    return add(b.graph(), x, b.gated_mlp(b.norm(x, "post_attention_layernorm", c.hidden_size), false));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("qwen2", c, checkpoint, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

}  // namespace redline
