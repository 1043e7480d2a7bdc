// GPT-2: learned embeddings of positions, layer norms and projections with biases, GELU (Radford et al. 2019).
#include "models/text/gpt2.h"

#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/linear.h"
#include "models/text/llama.h"

namespace redline {

nlohmann::json gpt2_common_config(const nlohmann::json& own) {
  constexpr std::pair<const char*, const char*> kKeys[] = {{"n_embd", "hidden_size"},
                                                           {"n_layer", "num_hidden_layers"},
                                                           {"n_head", "num_attention_heads"},
                                                           {"n_positions", "max_position_embeddings"},
                                                           {"n_inner", "intermediate_size"},
                                                           {"activation_function", "hidden_act"},
                                                           {"layer_norm_epsilon", "layer_norm_eps"}};
  return with_common_names(own, kKeys);
}

namespace {

/// Adds features [begin, begin + out) of a projection to `stored` features. Hugging Face's matrices are [in, out],
/// GGUF's [out, in].
Value project(LayerBuilder& b, Value x, const char* name, const char* part, int64_t stored, int64_t begin, int64_t out,
              int64_t in, bool is_transposed) {
  if (!is_transposed) return b.project_part(x, name, part, stored, begin, out, in, true);
  const std::string from = b.scope() + name, to = b.scope() + part;
  b.graph().set_scope(to);
  const Value weight = b.weights().take_transposed(from + ".weight", in, stored, begin, out, to + ".weight");
  return linear(b.graph(), x, weight, b.weights().take_rows(from + ".bias", {stored}, begin, out, to + ".bias"));
}

/// Returns the form that a tensor has in GGUF files. Projections are transposed; the buffers with the causal mask are
/// left out, for they are not weights.
GgufForm gpt2_gguf_form(const Checkpoint&, const DecoderConfig&, std::string_view name) {
  GgufForm form;
  form.is_left_out = name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
  for (const char* projection :
       {".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight", ".mlp.c_proj.weight"})
    form.is_transposed |= name.ends_with(projection);
  return form;
}

Result<LanguageModel> build_gpt2(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  nlohmann::json config = gpt2_common_config(checkpoint.config);
  ConfigReader r(config);
  if (!r.has("intermediate_size")) config["intermediate_size"] = 4 * r.integer("hidden_size", 1, int64_t{1} << 22);
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    if (r.boolean(key, false)) r.fail(unsupported("config: {} of GPT-2", key));
  if (!r.boolean("scale_attn_weights", true)) r.fail(unsupported("config: GPT-2 without scale_attn_weights"));
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.max_positions = 1024,
                                                               .tied = true,
                                                               .activation = Activation::kGeluTanh,
                                                               .norm_eps = "layer_norm_eps",
                                                               .norm_eps_value = 1e-5}));
  c.norm = {.layer = true, .bias = true};
  // The first releases have the names of the inner module.
  const bool is_bare = checkpoint.tensors.count("wte.weight") > 0;
  const std::string prefix = is_bare ? "" : "transformer.";
  c.names = {.layers = prefix + "h.",
             .embedding = prefix + "wte",
             .norm = prefix + "ln_f",
             .head = "lm_head",
             .positions = prefix + "wpe"};
  const bool is_transposed = !checkpoint.gguf_names;

  auto layer = [&](LayerBuilder& b, Value x) {
    const int64_t size = c.hidden_size;
    for (const char* buffer : {"attn.bias", "attn.masked_bias"}) b.weights().ignore(b.scope() + buffer);
    const Value h = b.norm(x, "ln_1", size);
    const auto heads = [&](const char* part, int64_t begin) {
      return project(b, h, "attn.c_attn", part, 3 * size, begin, size, size, is_transposed);
    };
    const Value q = heads("attn.q", 0), k = heads("attn.k", size), v = heads("attn.v", 2 * size);
    const auto whole = [&](Value in, const char* name, int64_t out, int64_t features) {
      return project(b, in, name, name, out, 0, out, features, is_transposed);
    };
    x = add(b.graph(), x, whole(b.attend(q, k, v), "attn.c_proj", size, size));
    const Value up = whole(b.norm(x, "ln_2", size), "mlp.c_fc", c.intermediate_size, size);
    return add(b.graph(), x, whole(activation(b.graph(), up, c.activation), "mlp.c_proj", size, c.intermediate_size));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("gpt2", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

}  // namespace

extern const ModelFamily kGpt2Family = {
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .gguf = {.architecture = "gpt2", .top = kGpt2GgufTop, .layer = kGpt2GgufLayer, .hf_layers = "transformer.h."},
    .build = build_gpt2,
    .gguf_form = gpt2_gguf_form,
    .common_config = gpt2_common_config,
};

}  // namespace redline
