// Command R of Cohere: attention and feed-forward of a layer in parallel, layer norm without bias, scaled logits, rope
// with neighbouring elements as pairs.
#include "graph/ops/add.h"
#include "models/llama.h"
#include "models/rope_config.h"

namespace redline {
namespace {

Result<LanguageModel> build_cohere(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(
      DecoderConfig c,
      read_decoder_config(with_rope_theta(checkpoint.config, 5e5),
                          {.max_positions = 8192, .tied = true, .norm_eps = "layer_norm_eps", .norm_eps_value = 1e-5}));
  c.norm.layer = true;
  c.interleaved_rope = true;
  ConfigReader r(checkpoint.config);
  c.logit_scale = static_cast<float>(r.number("logit_scale", 1e-6, 1e6, 0.0625));
  const bool bias = r.boolean("attention_bias", false);
  if (r.boolean("use_qk_norm", false)) r.fail(unsupported("config: use_qk_norm of Command R+"));
  REDLINE_TRY(r.status());

  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    const int64_t q_size = c.num_heads * c.head_dim, kv_size = c.num_kv_heads * c.head_dim;
    const Value q = b.rotate(b.project_heads(h, "self_attn.q_proj", c.num_heads, bias));
    const Value k = b.rotate(b.project_heads(h, "self_attn.k_proj", c.num_kv_heads, bias));
    const Value v = b.project(h, "self_attn.v_proj", kv_size, c.hidden_size, bias);
    x = add(b.graph(), x, b.project(b.attend(q, k, v), "self_attn.o_proj", c.hidden_size, q_size, bias));
    return add(b.graph(), x, b.gated_mlp(h, false));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("cohere", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

constexpr GgufName kCohereGgufNorms[] = {{"attn_norm", "input_layernorm"}};

void cohere_gguf_numbers(const DecoderConfig& c, const ModelFamily::SetNumber& set) {
  set("logit_scale", double{c.logit_scale});
}

}  // namespace

extern const ModelFamily kCohereFamily = {
    .model_type = "cohere",
    .architecture = "CohereForCausalLM",
    .gguf = {.architecture = "command-r",
             .top = kLlamaGgufTop,
             .layer = kGgufProjections,
             .more_layer = kCohereGgufNorms},
    .build = build_cohere,
    .gguf_numbers = cohere_gguf_numbers,
};

}  // namespace redline
