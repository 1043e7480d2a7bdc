// GPT-NeoX and Pythia: attention and feed-forward in parallel, each with a layer norm of its own, rope on a quarter of
// each head (Black et al. 2022, arXiv:2204.06745).
#include "graph/ops/add.h"
#include "graph/ops/linear.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

namespace redline {
namespace {

/// Adds the projection to queries (which = 0), keys (1) or values (2). Hugging Face's weight has all three of the first
/// head, then of the second; GGUF's has all queries first.
Value project_neox_heads(LayerBuilder& b, Value x, int64_t which, bool has_bias, bool by_head) {
  constexpr const char* kNames[] = {"attention.query", "attention.key", "attention.value"};
  const DecoderConfig& c = b.config();
  const int64_t size = c.num_heads * c.head_dim;
  const char* const part = kNames[which];
  if (by_head) return b.project_by_head(x, "attention.query_key_value", part, which, has_bias);
  return b.project_part(x, "attention.query_key_value", part, 3 * size, which * size, size, c.hidden_size, has_bias);
}

/// Converts the rope keys that transformers before 5 used for this family. The reader of the config reports malformed
/// numbers.
nlohmann::json gpt_neox_common_config(const nlohmann::json& own_config) {
  nlohmann::json config = own_config;
  const auto parameters = config.find("rope_parameters");
  if (parameters == config.end() || !parameters->is_object()) {
    for (const auto& [own, common] :
         {std::pair{"rotary_emb_base", "rope_theta"}, {"rotary_pct", "partial_rotary_factor"}})
      if (const auto at = config.find(own); at != config.end()) {
        const nlohmann::json value = *at;
        config[common] = value;
      }
    if (!config.contains("rope_theta")) config["rope_theta"] = 10000.0;
    if (!config.contains("partial_rotary_factor")) config["partial_rotary_factor"] = 0.25;
  }
  if (!config.contains("use_parallel_residual")) config["use_parallel_residual"] = true;
  return config;
}

/// Reorders rows, which are stored by head, to GGUF's order, which has all queries first.
GgufForm gpt_neox_gguf_form(const Checkpoint&, const DecoderConfig& c, std::string_view name) {
  GgufForm form;
  form.is_left_out = name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias");
  if (name.find(".query_key_value.") == std::string_view::npos) return form;
  form.stored_row = [c](int64_t n) { return row_by_head(c, n); };
  return form;
}

Result<LanguageModel> build_gpt_neox(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const nlohmann::json config = checkpoint.gguf_names ? checkpoint.config : gpt_neox_common_config(checkpoint.config);
  REDLINE_ASSIGN(DecoderConfig c,
                 read_decoder_config(
                     config, {.activation = Activation::kGelu, .norm_eps = "layer_norm_eps", .norm_eps_value = 1e-5}));
  if (c.num_kv_heads != c.num_heads) return unsupported("config: GPT-NeoX with fewer key-value heads than heads");
  c.norm = {.layer = true, .bias = true};
  // transformers 5 calls it lm_head.
  const bool is_renamed = checkpoint.tensors.count("lm_head.weight") > 0;
  c.names = {.layers = "gpt_neox.layers.",
             .embedding = "gpt_neox.embed_in",
             .norm = "gpt_neox.final_layer_norm",
             .head = is_renamed ? "lm_head" : "embed_out"};
  ConfigReader r(config);
  const bool bias = r.boolean("attention_bias", true), parallel = r.boolean("use_parallel_residual", true);
  REDLINE_TRY(r.status());

  auto layer = [&](LayerBuilder& b, Value x) {
    const std::string scope = b.scope() + "attention.";
    for (const char* buffer : {"bias", "masked_bias", "rotary_emb.inv_freq"}) b.weights().ignore(scope + buffer);
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    const auto heads = [&](int64_t which) { return project_neox_heads(b, h, which, bias, !checkpoint.gguf_names); };
    const Value q = b.rotate(heads(0)), k = b.rotate(heads(1)), v = heads(2);
    const Value y = b.project(b.attend(q, k, v), "attention.dense", c.hidden_size, c.num_heads * c.head_dim, bias);
    const Value after = add(b.graph(), x, y);
    const Value inner = b.norm(parallel ? x : after, "post_attention_layernorm", c.hidden_size);
    return add(b.graph(), after, b.plain_mlp(inner, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", true));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("gpt_neox", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

constexpr GgufName kGptNeoxGgufTop[] = {{"token_embd", "gpt_neox.embed_in"},
                                        {"output_norm", "gpt_neox.final_layer_norm"},
                                        {"output", "embed_out"},
                                        {"output", "lm_head"}};
constexpr GgufName kGptNeoxGgufLayer[] = {{"attn_norm", "input_layernorm"},   {"attn_qkv", "attention.query_key_value"},
                                          {"attn_output", "attention.dense"}, {"ffn_norm", "post_attention_layernorm"},
                                          {"ffn_up", "mlp.dense_h_to_4h"},    {"ffn_down", "mlp.dense_4h_to_h"}};

}  // namespace

extern const ModelFamily kGptNeoxFamily = {
    .model_type = "gpt_neox",
    .architecture = "GPTNeoXForCausalLM",
    .gguf = {.architecture = "gptneox",
             .top = kGptNeoxGgufTop,
             .layer = kGptNeoxGgufLayer,
             .hf_layers = "gpt_neox.layers.",
             .read_keys = [](GgufKeyReader& keys) { keys.boolean("use_parallel_residual", "use_parallel_residual"); }},
    .build = build_gpt_neox,
    .gguf_form = gpt_neox_gguf_form,
    .common_config = gpt_neox_common_config,
};

}  // namespace redline
