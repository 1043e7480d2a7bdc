#include "models/text/gemma.h"

#include <cmath>

#include "graph/ops/add.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

namespace redline {

Status set_gemma(const nlohmann::json& config, int64_t layers_of_27b, bool is_gguf, DecoderConfig& c) {
  ConfigReader r(config);
  c.norm.plus_one = true;
  c.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c.hidden_size)));
  const bool is_27b = is_gguf && c.num_layers == layers_of_27b;
  const int64_t usual = is_27b ? c.hidden_size / c.num_heads : is_gguf ? c.head_dim : 256;
  const double scaled_by = r.number("query_pre_attn_scalar", 1, 1e6, static_cast<double>(usual));
  c.attention_scale = static_cast<float>(1 / std::sqrt(scaled_by));
  if (r.boolean("use_bidirectional_attention", false))
    r.fail(unsupported("config: use_bidirectional_attention; Redline runs causal Gemma"));
  return r.status();
}

float read_soft_cap(ConfigReader& r, const Checkpoint& checkpoint, const char* key, double usual) {
  if (!r.has(key) && (checkpoint.config.contains(key) || usual == 0)) return 0;
  return static_cast<float>(r.number(key, 1e-3, 1e6, usual));
}

void read_gemma_cap_keys(GgufKeyReader& keys) {
  keys.number("final_logit_softcapping", "final_logit_softcapping");
  keys.number("attn_logit_softcapping", "attn_logit_softcapping");
}

void gemma_gguf_caps(const DecoderConfig& c, const ModelFamily::SetNumber& set) {
  if (c.attention_soft_cap > 0) set("attn_logit_softcapping", double{c.attention_soft_cap});
  if (c.logit_soft_cap > 0) set("final_logit_softcapping", double{c.logit_soft_cap});
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
    return self_attention(b, h,
                          {.qkv_bias = bias, .output_bias = bias, .norm = norms_qk ? QkNorm::kHead : QkNorm::kNone});
  });
}

}  // namespace redline
