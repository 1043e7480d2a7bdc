// StableLM 2 and StableLM 3B: a Llama with layer norms, rope on a quarter of each head, and in some models attention
// and feed-forward in parallel with one norm (Bellagente et al. 2024, arXiv:2402.17834).
#include "graph/ops/add.h"
#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

namespace redline {
namespace {

/// Adds a layer norm of each head. Folders have the weight of each head in a tensor, GGUF files all in one.
Value norm_of_stablelm_heads(LayerBuilder& b, Value heads, bool is_query) {
  if (!heads.valid()) return heads;  // the projection does not fit: the graph keeps its error
  const DecoderConfig& c = b.config();
  const int64_t count = is_query ? c.num_heads : c.num_kv_heads;
  const std::string joined = b.scope() + (is_query ? "self_attn.q_norm" : "self_attn.k_norm") + ".weight";
  const std::string module = b.scope() + (is_query ? "self_attn.q_layernorm" : "self_attn.k_layernorm");
  b.graph().set_scope(module);
  if (b.weights().has(joined))
    return head_layer_norm(b, heads, b.weights().take_as(joined, {count, c.head_dim}, {count * c.head_dim}), {});
  std::vector<std::string> names;
  for (int64_t head = 0; head < count; ++head) names.push_back(fmt::format("{}.norms.{}.weight", module, head));
  return head_layer_norm(b, heads, b.weights().take_joined(names, c.head_dim, module + ".weight"), {});
}

Status set_stablelm_keys(const Checkpoint& checkpoint, const DecoderConfig&, const GgufKeys&) {
  ConfigReader r(checkpoint.config);
  if (r.boolean("qk_layernorm", false)) return unsupported("redline convert does not write qk_layernorm of stablelm");
  return r.status();
}

Result<LanguageModel> build_stablelm(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const nlohmann::json config =
      checkpoint.gguf_names ? checkpoint.config : with_partial_rotary_factor(checkpoint.config, 0.25);
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.max_positions = 4096,
                                                               .any_activation = true,
                                                               .norm_eps = "layer_norm_eps",
                                                               .norm_eps_value = 1e-5}));
  c.norm = {.layer = true, .bias = true};
  ConfigReader r(config);
  const bool bias = r.boolean("use_qkv_bias", false);
  SelfAttention attention = {.qkv_bias = bias};
  if (checkpoint.gguf_names ? checkpoint.tensors.count("model.layers.0.self_attn.q_norm.weight") > 0
                            : r.boolean("qk_layernorm", false))
    attention.own_norm = norm_of_stablelm_heads;
  const bool parallel = checkpoint.gguf_names
                            ? checkpoint.tensors.count("model.layers.0.post_attention_layernorm.weight") == 0
                            : r.boolean("use_parallel_residual", false);
  REDLINE_TRY(r.status());
  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    x = add(b.graph(), x, self_attention(b, h, attention));
    return add(b.graph(), x, b.gated_mlp(parallel ? h : b.norm(x, "post_attention_layernorm", c.hidden_size), false));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("stablelm", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

constexpr GgufName kStablelmGgufNorms[] = {{"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"}};

}  // namespace

extern const ModelFamily kStablelmFamily = {
    .model_type = "stablelm",
    .architecture = "StableLmForCausalLM",
    .gguf = {.architecture = "stablelm",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .more_layer = kStablelmGgufNorms},
    .build = build_stablelm,
    .gguf_keys = set_stablelm_keys,
};

}  // namespace redline
