// MPT: ALiBi instead of position embeddings, no biases (MosaicML 2023, github.com/mosaicml/llm-foundry).
#include "graph/ops/add.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

namespace redline {
namespace {

nlohmann::json mpt_common_config(const nlohmann::json& own_config) {
  constexpr std::pair<const char*, const char*> kKeys[] = {{"d_model", "hidden_size"},
                                                           {"n_layers", "num_hidden_layers"},
                                                           {"n_heads", "num_attention_heads"},
                                                           {"max_seq_len", "max_position_embeddings"},
                                                           {"layer_norm_epsilon", "layer_norm_eps"}};
  return with_common_names(own_config, kKeys);
}

struct MptAttention {
  float max_bias = 8, scale = 0;
};

/// Reads "attn_config", or what GGUF files have of it.
Result<MptAttention> read_mpt_attention(const nlohmann::json& config, bool is_gguf) {
  const nlohmann::json none = nlohmann::json::object();
  const auto at = config.find("attn_config");
  if (at != config.end() && !at->is_object() && !at->is_null())
    return invalid_argument("config: attn_config is not an object");
  ConfigReader r(is_gguf ? config : at == config.end() || at->is_null() ? none : *at);
  if (const std::string type = r.text("attn_type", "multihead_attention"); type != "multihead_attention")
    r.fail(unsupported("config: attn_type \"{}\" of MPT; Redline runs multihead_attention", type));
  if (!r.boolean("alibi", true)) r.fail(unsupported("config: MPT without alibi"));
  for (const char* key : {"prefix_lm", "qk_ln", "attn_uses_sequence_id"})
    if (r.boolean(key, false)) r.fail(unsupported("config: {} of MPT", key));
  if (r.has("clip_qkv") && r.number("clip_qkv", 0, 1e9) > 0) r.fail(unsupported("config: clip_qkv of MPT"));
  MptAttention a;
  a.max_bias = static_cast<float>(r.number("alibi_bias_max", 0, 1e4, 8.0));
  if (a.max_bias == 0) r.fail(unsupported("config: MPT without alibi"));
  if (r.has("softmax_scale")) a.scale = static_cast<float>(r.number("softmax_scale", 1e-9, 1e9));
  REDLINE_TRY(r.status());
  return a;
}

Result<LanguageModel> build_mpt(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const bool is_gguf = checkpoint.gguf_names != nullptr;
  nlohmann::json config = mpt_common_config(checkpoint.config);
  ConfigReader r(config);
  if (!is_gguf)
    config["intermediate_size"] =
        r.integer("expansion_ratio", 1, 1 << 10, 4) * r.integer("hidden_size", 1, int64_t{1} << 22);
  if (!r.boolean("no_bias", true)) r.fail(unsupported("config: MPT with biases"));
  if (r.has("logit_scale")) r.fail(unsupported("config: logit_scale of MPT"));
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(const MptAttention attention, read_mpt_attention(config, is_gguf));
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.tied = true,
                                                               .activation = Activation::kGelu,
                                                               .norm_eps = "layer_norm_eps",
                                                               .norm_eps_value = 1e-5}));
  if (c.num_kv_heads != c.num_heads) return unsupported("config: MPT with fewer key-value heads than heads");
  c.unrotated.assign(static_cast<size_t>(c.num_layers), true);
  c.attention_scale = attention.scale;
  c.norm = {.layer = true};
  c.names = {.layers = "transformer.blocks.", .embedding = "transformer.wte", .norm = "transformer.norm_f"};

  auto layer = [&](LayerBuilder& b, Value x) {
    const int64_t size = c.hidden_size, inner = c.num_heads * c.head_dim;
    const Value h = b.norm(x, "norm_1", size);
    const auto heads = [&](const char* part, int64_t which) {
      return b.project_part(h, "attn.Wqkv", part, 3 * inner, which * inner, inner, size, false);
    };
    const Value q = heads("attn.query", 0), k = heads("attn.key", 1), v = heads("attn.value", 2);
    const Value y = b.attend(q, k, v, {.slopes = b.alibi(alibi_slopes(c.num_heads, attention.max_bias))});
    x = add(b.graph(), x, b.project(y, "attn.out_proj", size, inner, false));
    return add(b.graph(), x, b.plain_mlp(b.norm(x, "norm_2", size), "ffn.up_proj", "ffn.down_proj", false));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("mpt", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

Status mpt_gguf_keys(const Checkpoint& checkpoint, const DecoderConfig&, const GgufKeys& set) {
  REDLINE_ASSIGN(const MptAttention attention, read_mpt_attention(checkpoint.config, false));
  set.number("attention.max_alibi_bias", double{attention.max_bias});
  return {};
}

constexpr GgufName kMptGgufTop[] = {{"token_embd", "transformer.wte"}, {"output_norm", "transformer.norm_f"}};
constexpr GgufName kMptGgufLayer[] = {{"attn_norm", "norm_1"},          {"attn_qkv", "attn.Wqkv"},
                                      {"attn_output", "attn.out_proj"}, {"ffn_norm", "norm_2"},
                                      {"ffn_up", "ffn.up_proj"},        {"ffn_down", "ffn.down_proj"}};

}  // namespace

extern const ModelFamily kMptFamily = {
    .model_type = "mpt",
    .architecture = "MptForCausalLM",
    .gguf = {.architecture = "mpt",
             .top = kMptGgufTop,
             .layer = kMptGgufLayer,
             .hf_layers = "transformer.blocks.",
             .read_keys =
                 [](GgufKeyReader& keys) {
                   keys.number("attention.max_alibi_bias", "alibi_bias_max");
                   keys.number("attention.clamp_kqv", "clip_qkv");
                 }},
    .build = build_mpt,
    .common_config = mpt_common_config,
    .gguf_keys = mpt_gguf_keys,
    .gguf_states_rope = true,
};

}  // namespace redline
