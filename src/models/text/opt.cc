// OPT: learned positions that begin at row 2, layer norms and projections with biases, ReLU (Zhang et al. 2022,
// arXiv:2205.01068).
#include "graph/ops/add.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_opt(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  nlohmann::json config = checkpoint.config;
  if (const auto at = checkpoint.config.find("ffn_dim"); at != checkpoint.config.end())
    config["intermediate_size"] = *at;
  if (const auto at = checkpoint.config.find("activation_function"); at != checkpoint.config.end())
    config["hidden_act"] = *at;
  config["layer_norm_eps"] = 1e-5;
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.max_positions = 2048,
                                                               .tied = true,
                                                               .activation = Activation::kRelu,
                                                               .any_activation = true,
                                                               .norm_eps = "layer_norm_eps",
                                                               .norm_eps_value = 1e-5}));
  ConfigReader r(checkpoint.config);
  if (!r.boolean("do_layer_norm_before", true)) r.fail(unsupported("config: OPT without do_layer_norm_before"));
  if (r.boolean("_remove_final_layer_norm", false)) r.fail(unsupported("config: _remove_final_layer_norm of OPT"));
  if (!r.boolean("layer_norm_elementwise_affine", true))
    r.fail(unsupported("config: OPT without layer_norm_elementwise_affine"));
  if (r.integer("word_embed_proj_dim", 1, 1 << 24, c.hidden_size) != c.hidden_size)
    r.fail(unsupported("config: word_embed_proj_dim other than hidden_size"));
  const bool bias = r.boolean("enable_bias", true);
  REDLINE_TRY(r.status());
  c.norm = {.layer = true, .bias = true};
  c.unrotated.assign(static_cast<size_t>(c.num_layers), true);
  // The first releases have the names of the inner module.
  const std::string prefix =
      checkpoint.tensors.count("decoder.embed_tokens.weight") > 0 ? "decoder." : "model.decoder.";
  constexpr int64_t kFirstPosition = 2;
  c.names = {.layers = prefix + "layers.",
             .embedding = prefix + "embed_tokens",
             .norm = prefix + "final_layer_norm",
             .positions = prefix + "embed_positions",
             .first_position = kFirstPosition};
  const SelfAttention attention = {.qkv_bias = bias, .output_bias = bias, .output = "self_attn.out_proj"};
  auto layer = [&](LayerBuilder& b, Value x) {
    x = add(b.graph(), x, self_attention(b, b.norm(x, "self_attn_layer_norm", c.hidden_size), attention));
    return add(b.graph(), x, b.plain_mlp(b.norm(x, "final_layer_norm", c.hidden_size), "fc1", "fc2", bias));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("opt", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

}  // namespace

extern const ModelFamily kOptFamily = {
    .model_type = "opt",
    .architecture = "OPTForCausalLM",
    .gguf = {},
    .build = build_opt,
};

}  // namespace redline
