#include "models/gemma.h"

#include <cmath>

#include "graph/ops/add.h"

namespace redline {

Status set_gemma(const Checkpoint& checkpoint, int64_t layers_of_27b, DecoderConfig& c) {
  ConfigReader r(checkpoint.config);
  c.norm.plus_one = true;
  c.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c.hidden_size)));
  const bool is_27b = checkpoint.gguf_names && c.num_layers == layers_of_27b;
  const int64_t usual = is_27b ? c.hidden_size / c.num_heads : checkpoint.gguf_names ? c.head_dim : 256;
  const double scaled_by = r.number("query_pre_attn_scalar", 1, 1e6, static_cast<double>(usual));
  c.attention_scale = static_cast<float>(1 / std::sqrt(scaled_by));
  if (r.boolean("use_bidirectional_attention", false))
    r.fail(unsupported("config: use_bidirectional_attention; Redline runs causal Gemma"));
  return r.status();
}

Value gemma_layer(LayerBuilder& b, Value x, const std::function<Value(Value)>& attention) {
  const int64_t width = b.config().hidden_size;
  const Value out = attention(b.norm(x, "input_layernorm", width));
  x = add(b.graph(), x, b.norm(out, "post_attention_layernorm", width));
  const Value inner = b.gated_mlp(b.norm(x, "pre_feedforward_layernorm", width), false);
  return add(b.graph(), x, b.norm(inner, "post_feedforward_layernorm", width));
}

Value gemma_layer(LayerBuilder& b, Value x, bool bias, bool norms_qk) {
  return gemma_layer(b, x, [&](Value h) {
    const DecoderConfig& c = b.config();
    const int64_t q_size = c.num_heads * c.head_dim, kv_size = c.num_kv_heads * c.head_dim;
    const Value q = b.project(h, "self_attn.q_proj", q_size, c.hidden_size, bias);
    const Value k = b.project(h, "self_attn.k_proj", kv_size, c.hidden_size, bias);
    const Value v = b.project(h, "self_attn.v_proj", kv_size, c.hidden_size, bias);
    const auto normed = [&](Value heads, const char* name) {
      return norms_qk ? b.norm(heads, name, c.head_dim) : heads;
    };
    const Value y = b.attend(b.rotate(normed(q, "self_attn.q_norm")), b.rotate(normed(k, "self_attn.k_norm")), v);
    return b.project(y, "self_attn.o_proj", c.hidden_size, q_size, bias);
  });
}

}  // namespace redline
