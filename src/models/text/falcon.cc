// Falcon 7B to 180B: attention and feed-forward in parallel, few key-value heads, layer norms with biases (Almazrouei
// et al. 2023, arXiv:2311.16867). The models of RefinedWeb have ALiBi instead of rope, or feed-forward after attention.
// Falcon 3 is a Llama.
#include <cmath>

#include "graph/ops/add.h"
#include "graph/ops/linear.h"
#include "models/text/llama.h"

namespace redline {
namespace {

struct Heads {
  int64_t per_group = 1;  ///< query heads for each key-value head
  bool by_group = false;  ///< rows are stored by group: its queries, its key, its value; false: all queries first
  bool has_bias = false;
};

/// Adds the projection to queries (which = 0), keys (1) or values (2).
Value project_falcon_heads(LayerBuilder& b, Value x, int64_t which, const Heads& heads) {
  constexpr const char* kNames[] = {"self_attention.query", "self_attention.key", "self_attention.value"};
  const DecoderConfig& c = b.config();
  const int64_t d = c.head_dim, q_size = c.num_heads * d, kv_size = c.num_kv_heads * d;
  const int64_t stored = q_size + 2 * kv_size, size = which == 0 ? q_size : kv_size;
  const char* const part = kNames[which];
  if (!heads.by_group)
    return b.project_part(x, "self_attention.query_key_value", part, stored,
                          which == 0 ? 0 : q_size + (which - 1) * kv_size, size, c.hidden_size, heads.has_bias);
  b.graph().set_scope(b.scope() + part);
  const int64_t mine = which == 0 ? heads.per_group : 1, before = which == 0 ? 0 : heads.per_group + which - 1;
  const auto row_of = [=](int64_t row) {
    const int64_t head = row / d;
    return (head / mine * (heads.per_group + 2) + before + head % mine) * d + row % d;
  };
  const auto take = [&](const std::string& kind, const std::vector<int64_t>& shape) {
    return b.weights().take_gathered(b.scope() + "self_attention.query_key_value" + kind, shape, size, row_of,
                                     b.scope() + part + kind);
  };
  const Value weight = take(".weight", {stored, c.hidden_size});
  return linear(b.graph(), x, weight, heads.has_bias ? take(".bias", {stored}) : Value{});
}

/// Returns the ALiBi slopes. Falcon divides scores and biases by the root of head_dim, and was trained with slopes in
/// bfloat16. transformers also rounds slope times position to bfloat16, which shows from position 256 on.
std::vector<float> falcon_slopes(const DecoderConfig& c) {
  std::vector<float> slopes = alibi_slopes(c.num_heads);
  for (float& slope : slopes) slope = bf16_to_f32(f32_to_bf16(slope)) / std::sqrt(static_cast<float>(c.head_dim));
  return slopes;
}

/// Reorders rows from groups of heads to GGUF's order, which has all queries first.
GgufForm falcon_gguf_form(const Checkpoint& checkpoint, const DecoderConfig& c, std::string_view name) {
  const auto says = [&](const char* key, bool otherwise) {
    const auto at = checkpoint.config.find(key);
    return at != checkpoint.config.end() && at->is_boolean() ? at->get<bool>() : otherwise;
  };
  const bool by_group = says("new_decoder_architecture", false) || !says("multi_query", true);
  if (!by_group || name.find(".query_key_value.") == std::string_view::npos) return {};
  GgufForm form;
  form.stored_row = [d = c.head_dim, heads = c.num_heads, kv_heads = c.num_kv_heads](int64_t n) {
    const int64_t per_group = heads / kv_heads, head = n / d;
    const int64_t which = head < heads ? 0 : head < heads + kv_heads ? 1 : 2;
    const int64_t own = head - (which == 0 ? 0 : heads + (which - 1) * kv_heads);  // index among the heads of its kind
    const int64_t group = which == 0 ? own / per_group : own,
                  place = which == 0 ? own % per_group : per_group + which - 1;
    return (group * (per_group + 2) + place) * d + n % d;
  };
  return form;
}

Result<LanguageModel> build_falcon(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const bool is_gguf = checkpoint.gguf_names != nullptr;
  nlohmann::json config = checkpoint.config;
  ConfigReader r(checkpoint.config);
  const bool grouped = r.boolean("new_decoder_architecture", false), one_kv_head = r.boolean("multi_query", true);
  const bool alibi = r.boolean("alibi", false), parallel = grouped || r.boolean("parallel_attn", true);
  // transformers has no input for the feed-forward in this combination.
  if (grouped && !r.boolean("parallel_attn", true) && r.integer("num_ln_in_parallel_attn", 1, 2, 2) == 1)
    r.fail(unsupported(
        "config: new_decoder_architecture of Falcon without parallel_attn and with num_ln_in_parallel_attn 1"));
  const bool bias = r.boolean("bias", false);
  const std::string activation = r.text("activation", "gelu");
  REDLINE_TRY(r.status());
  if (!is_gguf) {
    const int64_t all = r.integer("num_attention_heads", 1, 1 << 20);
    config["hidden_act"] = activation;
    config["num_key_value_heads"] = grouped ? r.integer("num_kv_heads", 1, 1 << 20, all) : one_kv_head ? 1 : all;
    config["intermediate_size"] =
        r.integer("ffn_hidden_size", 1, 1 << 24, 4 * r.integer("hidden_size", 1, int64_t{1} << 22));
    config["layer_norm_eps"] = r.number("layer_norm_epsilon", 0, 1, 1e-5);
  }
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.tied = true,
                                                               .activation = Activation::kGelu,
                                                               .norm_eps = "layer_norm_eps",
                                                               .norm_eps_value = 1e-5}));
  c.norm = {.layer = true, .bias = true};
  c.names = {.layers = "transformer.h.", .embedding = "transformer.word_embeddings", .norm = "transformer.ln_f"};
  // GGUF files call the norm of the feed-forward, or the only one, attn_norm.
  const bool two_norms = is_gguf ? checkpoint.tensors.count("transformer.h.0.ln_attn.weight") > 0
                                 : grouped && r.integer("num_ln_in_parallel_attn", 1, 2, 2) == 2;
  REDLINE_TRY(r.status());
  if (alibi) c.unrotated.assign(static_cast<size_t>(c.num_layers), true);
  const Heads heads = {c.num_heads / c.num_kv_heads, !is_gguf && (grouped || !one_kv_head), bias};

  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, two_norms ? "ln_attn" : "input_layernorm", c.hidden_size);
    const Value q = b.rotate(project_falcon_heads(b, h, 0, heads)), k = b.rotate(project_falcon_heads(b, h, 1, heads));
    AttentionInputs of_heads;
    if (alibi) of_heads.slopes = b.alibi(falcon_slopes(c));
    const Value y = b.attend(q, k, project_falcon_heads(b, h, 2, heads), of_heads);
    Value inner = two_norms ? b.norm(x, is_gguf ? "input_layernorm" : "ln_mlp", c.hidden_size) : h;
    x = add(b.graph(), x, b.project(y, "self_attention.dense", c.hidden_size, c.num_heads * c.head_dim, bias));
    if (!parallel) inner = b.norm(x, "post_attention_layernorm", c.hidden_size);
    return add(b.graph(), x, b.plain_mlp(inner, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", bias));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("falcon", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

/// Refuses models that no GGUF file can describe: llama.cpp's Falcon always has rope, and attention and feed-forward in
/// parallel.
Status set_falcon_keys(const Checkpoint& checkpoint, const DecoderConfig&, const GgufKeys&) {
  ConfigReader r(checkpoint.config);
  const bool alibi = r.boolean("alibi", false);
  const bool parallel = r.boolean("parallel_attn", true) || r.boolean("new_decoder_architecture", false);
  REDLINE_TRY(r.status());
  if (!alibi && parallel) return {};
  return unsupported("GGUF has no key for Falcon {}", alibi ? "with alibi" : "without parallel_attn");
}

constexpr GgufName kFalconGgufTop[] = {
    {"token_embd", "transformer.word_embeddings"}, {"output_norm", "transformer.ln_f"}, {"output", "lm_head"}};
constexpr GgufName kFalconGgufLayer[] = {{"attn_norm", "input_layernorm"},
                                         {"attn_norm", "ln_mlp"},
                                         {"attn_norm_2", "ln_attn"},
                                         {"attn_qkv", "self_attention.query_key_value"},
                                         {"attn_output", "self_attention.dense"},
                                         {"ffn_up", "mlp.dense_h_to_4h"},
                                         {"ffn_down", "mlp.dense_4h_to_h"}};

}  // namespace

extern const ModelFamily kFalconFamily = {
    .model_type = "falcon",
    .architecture = "FalconForCausalLM",
    .gguf = {.architecture = "falcon",
             .top = kFalconGgufTop,
             .layer = kFalconGgufLayer,
             .hf_layers = "transformer.h.",
             .quantize = {.wants_fine_logits = true, .bears_coarse_layers = true}},
    .build = build_falcon,
    .gguf_form = falcon_gguf_form,
    .gguf_keys = set_falcon_keys,
    .gguf_states_rope = true,
};

}  // namespace redline
