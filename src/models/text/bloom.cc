// BLOOM: ALiBi instead of position embeddings, a norm of the embeddings, layer norms and projections with biases
// (Le Scao et al. 2022, arXiv:2211.05100).
#include "graph/ops/add.h"
#include "models/text/llama.h"

namespace redline {
namespace {

nlohmann::json bloom_common_config(const nlohmann::json& own_config) {
  constexpr std::pair<const char*, const char*> kKeys[] = {{"n_embed", "hidden_size"},
                                                           {"n_layer", "num_hidden_layers"},
                                                           {"n_head", "num_attention_heads"},
                                                           {"seq_length", "max_position_embeddings"},
                                                           {"layer_norm_epsilon", "layer_norm_eps"}};
  return with_common_names(own_config, kKeys);
}

/// Reorders rows, which are stored by head, to GGUF's order, which has all queries first.
GgufForm bloom_gguf_form(const Checkpoint&, const DecoderConfig& c, std::string_view name) {
  GgufForm form;
  if (name.find(".query_key_value.") != std::string_view::npos)
    form.stored_row = [c](int64_t n) { return row_by_head(c, n); };
  return form;
}

Result<LanguageModel> build_bloom(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const bool is_gguf = checkpoint.gguf_names != nullptr;
  nlohmann::json config = bloom_common_config(checkpoint.config);
  ConfigReader r(config);
  if (!is_gguf) config["intermediate_size"] = 4 * r.integer("hidden_size", 1, int64_t{1} << 22);
  if (r.boolean("apply_residual_connection_post_layernorm", false))
    r.fail(unsupported("config: apply_residual_connection_post_layernorm of BLOOM"));
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.tied = true,
                                                               .activation = Activation::kGeluTanh,
                                                               .norm_eps = "layer_norm_eps",
                                                               .norm_eps_value = 1e-5}));
  if (c.num_kv_heads != c.num_heads) return unsupported("config: BLOOM with fewer key-value heads than heads");
  c.unrotated.assign(static_cast<size_t>(c.num_layers), true);
  c.norm = {.layer = true, .bias = true};
  // Published files have the names of the inner module.
  const std::string prefix = checkpoint.tensors.count("word_embeddings.weight") > 0 ? "" : "transformer.";
  c.names = {.layers = prefix + "h.",
             .embedding = prefix + "word_embeddings",
             .norm = prefix + "ln_f",
             .embedding_norm = prefix + "word_embeddings_layernorm"};

  auto layer = [&](LayerBuilder& b, Value x) {
    constexpr const char *kJoint = "self_attention.query_key_value",
                         *kParts[] = {"self_attention.query", "self_attention.key", "self_attention.value"};
    const int64_t size = c.hidden_size, inner = c.num_heads * c.head_dim;
    const Value h = b.norm(x, "input_layernorm", size);
    const auto heads = [&](int64_t which) {
      return is_gguf ? b.project_part(h, kJoint, kParts[which], 3 * inner, which * inner, inner, size, true)
                     : b.project_by_head(h, kJoint, kParts[which], which, true);
    };
    const Value q = heads(0), k = heads(1), v = heads(2);
    x = add(b.graph(), x,
            b.project(b.attend(q, k, v, {.slopes = b.alibi(alibi_slopes(c.num_heads))}), "self_attention.dense", size,
                      inner, true));
    const Value normed = b.norm(x, "post_attention_layernorm", size);
    return add(b.graph(), x, b.plain_mlp(normed, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", true));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("bloom", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

constexpr GgufName kBloomGgufTop[] = {{"token_embd", "transformer.word_embeddings"},
                                      {"token_embd_norm", "transformer.word_embeddings_layernorm"},
                                      {"output_norm", "transformer.ln_f"},
                                      {"output", "lm_head"}};
constexpr GgufName kBloomGgufLayer[] = {
    {"attn_norm", "input_layernorm"},        {"attn_qkv", "self_attention.query_key_value"},
    {"attn_output", "self_attention.dense"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.dense_h_to_4h"},         {"ffn_down", "mlp.dense_4h_to_h"}};

}  // namespace

extern const ModelFamily kBloomFamily = {
    .model_type = "bloom",
    .architecture = "BloomForCausalLM",
    .gguf = {.architecture = "bloom", .top = kBloomGgufTop, .layer = kBloomGgufLayer, .hf_layers = "transformer.h."},
    .build = build_bloom,
    .gguf_form = bloom_gguf_form,
    .common_config = bloom_common_config,
    .gguf_states_rope = true,
};

}  // namespace redline
