// StarCoder and SantaCoder: a GPT-2 whose heads may share one key and value, with matrices [out, in] (Li et al. 2023,
// arXiv:2305.06161).
#include "graph/ops/add.h"
#include "graph/ops/linear.h"
#include "models/text/gpt2.h"
#include "models/text/llama.h"

namespace redline {
namespace {

/// Adds queries (which = 0), keys (1) or values (2). With one shared head all queries come first; without, each head
/// has its queries, keys and values together.
Value project_bigcode(LayerBuilder& b, Value x, int64_t which) {
  constexpr const char* kName = "attn.c_attn";
  constexpr const char* kParts[] = {"attn.q", "attn.k", "attn.v"};
  const DecoderConfig& c = b.config();
  const int64_t d = c.head_dim, q_size = c.num_heads * d, kv_size = c.num_kv_heads * d;
  const int64_t stored = q_size + 2 * kv_size;
  if (c.num_kv_heads == 1)
    return b.project_part(x, kName, kParts[which], stored, which == 0 ? 0 : q_size + (which - 1) * kv_size,
                          which == 0 ? q_size : kv_size, c.hidden_size, true);
  const std::string from = b.scope() + kName, to = b.scope() + kParts[which];
  b.graph().set_scope(to);
  const auto row_of = [=](int64_t row) { return row / d * 3 * d + which * d + row % d; };
  const Value weight =
      b.weights().take_gathered(from + ".weight", {stored, c.hidden_size}, q_size, row_of, to + ".weight");
  return linear(b.graph(), x, weight,
                b.weights().take_gathered(from + ".bias", {stored}, q_size, row_of, to + ".bias"));
}

Result<LanguageModel> build_gpt_bigcode(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  nlohmann::json config = gpt2_common_config(checkpoint.config);
  ConfigReader r(config);
  if (!r.has("intermediate_size")) config["intermediate_size"] = 4 * r.integer("hidden_size", 1, int64_t{1} << 22);
  if (!checkpoint.gguf_names)
    config["num_key_value_heads"] =
        r.boolean("multi_query", true) ? 1 : r.integer("num_attention_heads", 1, int64_t{1} << 22);
  if (r.boolean("add_cross_attention", false)) r.fail(unsupported("config: add_cross_attention of GPTBigCode"));
  const bool scales = r.boolean("scale_attn_weights", true);
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.max_positions = 1024,
                                                               .tied = true,
                                                               .activation = Activation::kGeluTanh,
                                                               .any_activation = true,
                                                               .norm_eps = "layer_norm_eps",
                                                               .norm_eps_value = 1e-5}));
  if (!scales) c.attention_scale = 1;
  if (c.num_kv_heads != 1 && checkpoint.gguf_names)
    return unsupported("GGUF files of starcoder with a key and value for each head");
  c.norm = {.layer = true, .bias = true};
  c.unrotated.assign(static_cast<size_t>(c.num_layers), true);
  c.names = {.layers = "transformer.h.",
             .embedding = "transformer.wte",
             .norm = "transformer.ln_f",
             .positions = "transformer.wpe"};
  auto layer = [&](LayerBuilder& b, Value x) {
    for (const char* buffer : {"attn.bias", "attn.masked_bias"}) b.weights().ignore(b.scope() + buffer);
    const Value h = b.norm(x, "ln_1", c.hidden_size);
    const Value q = project_bigcode(b, h, 0), k = project_bigcode(b, h, 1), v = project_bigcode(b, h, 2);
    x = add(b.graph(), x, b.project(b.attend(q, k, v), "attn.c_proj", c.hidden_size, c.num_heads * c.head_dim, true));
    return add(b.graph(), x, b.plain_mlp(b.norm(x, "ln_2", c.hidden_size), "mlp.c_fc", "mlp.c_proj", true));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("gpt_bigcode", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

Status set_gpt_bigcode_keys(const Checkpoint&, const DecoderConfig& c, const GgufKeys&) {
  if (c.num_kv_heads == 1) return {};
  return unsupported("GGUF files of starcoder have one key and value for all heads; multi_query is false");
}

}  // namespace

extern const ModelFamily kGptBigcodeFamily = {
    .model_type = "gpt_bigcode",
    .architecture = "GPTBigCodeForCausalLM",
    .gguf = {.architecture = "starcoder", .top = kGpt2GgufTop, .layer = kGpt2GgufLayer, .hf_layers = "transformer.h."},
    .build = build_gpt_bigcode,
    .common_config = gpt2_common_config,
    .gguf_keys = set_gpt_bigcode_keys,
    .gguf_states_rope = true,
};

}  // namespace redline
