// GPT-J: attention and feed-forward in parallel with one layer norm, rope on a part of each head with neighbouring
// elements as pairs (Wang and Komatsuzaki 2021).
#include <algorithm>

#include "graph/ops/add.h"
#include "models/text/gpt2.h"
#include "models/text/llama.h"

namespace redline {
namespace {

/// Returns the config with the common names of GPT-J's keys.
Result<nlohmann::json> gptj_common_config(const nlohmann::json& own) {
  nlohmann::json config = gpt2_common_config(own);
  ConfigReader r(config);
  const int64_t width = r.integer("hidden_size", 1, int64_t{1} << 22),
                heads = r.integer("num_attention_heads", 1, width);
  if (!r.has("intermediate_size")) config["intermediate_size"] = 4 * width;
  const int64_t head_dim = width / std::max<int64_t>(heads, 1),
                rotary = r.has("rotary_dim") ? r.integer("rotary_dim", 2, std::max<int64_t>(head_dim, 2)) : width;
  if (r.status().ok() && rotary > head_dim && r.has("rotary_dim"))
    r.fail(invalid_argument("config: rotary_dim {} of heads of {}", rotary, head_dim));
  if (config.contains("rotary_dim") && !r.has("rotary_dim"))
    r.fail(unsupported("config: rotary_dim null, rope over all heads together"));
  REDLINE_TRY(r.status());
  // The default is 64. The offset keeps the truncated product with head_dim from being one too small.
  const int64_t dim = r.has("rotary_dim") ? rotary : std::min<int64_t>(64, head_dim);
  config["partial_rotary_factor"] = std::min(1.0, (static_cast<double>(dim) + 1e-6) / static_cast<double>(head_dim));
  return config;
}

Result<LanguageModel> build_gptj(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(const nlohmann::json config, gptj_common_config(checkpoint.config));
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.max_positions = 2048,
                                                               .activation = Activation::kGeluTanh,
                                                               .any_activation = true,
                                                               .norm_eps = "layer_norm_eps",
                                                               .norm_eps_value = 1e-5}));
  c.norm = {.layer = true, .bias = true};
  c.interleaved_rope = true;
  c.has_head_bias = true;
  c.names = {.layers = "transformer.h.", .embedding = "transformer.wte", .norm = "transformer.ln_f"};
  const SelfAttention attention = {
      .q = "attn.q_proj", .k = "attn.k_proj", .v = "attn.v_proj", .output = "attn.out_proj"};
  auto layer = [&](LayerBuilder& b, Value x) {
    for (const char* buffer : {"attn.bias", "attn.masked_bias"}) b.weights().ignore(b.scope() + buffer);
    const Value h = b.norm(x, "ln_1", c.hidden_size);
    x = add(b.graph(), x, self_attention(b, h, attention));
    return add(b.graph(), x, b.plain_mlp(h, "mlp.fc_in", "mlp.fc_out", true));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("gptj", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

}  // namespace

extern const ModelFamily kGptjFamily = {
    .model_type = "gptj",
    .architecture = "GPTJForCausalLM",
    .gguf = {},
    .build = build_gptj,
};

}  // namespace redline
