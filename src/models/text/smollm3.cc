// SmolLM3: a Llama with some layers without rope, by default every fourth (NoPE: Kazemnejad et al. 2023,
// arXiv:2305.19466).
#include "models/blocks/rope_config.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_smollm3(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(with_rope_theta(checkpoint.config, 2e6),
                                                      {.num_kv_heads = 4, .max_positions = 32768, .tied = true}));
  ConfigReader r(checkpoint.config);
  const int64_t interval = r.integer("no_rope_layer_interval", 1, 1000, 4);
  const bool attention_bias = r.boolean("attention_bias", false), mlp_bias = r.boolean("mlp_bias", false);
  const bool has_windows = r.boolean("use_sliding_window", false) && r.has("sliding_window");
  const int64_t window = has_windows ? r.integer("sliding_window", 1, int64_t{1} << 40) : 0;
  REDLINE_TRY(r.status());
  c.unrotated.resize(static_cast<size_t>(c.num_layers));
  const auto list = checkpoint.config.find("no_rope_layers");  // in spite of its name, 1 where a layer has rope
  const bool listed = list != checkpoint.config.end() && list->is_array();
  if (listed && list->size() != c.unrotated.size())
    return invalid_argument("config: no_rope_layers must list {} layers", c.num_layers);
  for (size_t i = 0; i < c.unrotated.size(); ++i)
    c.unrotated[i] = listed ? (*list)[i] == 0 : (static_cast<int64_t>(i) + 1) % interval == 0;
  if (has_windows) {
    REDLINE_ASSIGN(c.window, windows_of_layers(checkpoint.config, c.num_layers, window, [&](int64_t layer) {
                     return bool{c.unrotated[static_cast<size_t>(layer)]};
                   }));
  }
  return build_llama_decoder("smollm3", std::move(c), checkpoint, outputs, {attention_bias, attention_bias, mlp_bias});
}

}  // namespace

extern const ModelFamily kSmolLm3Family = {
    .model_type = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .gguf = {.architecture = "smollm3", .top = kLlamaGgufTop, .layer = kLlamaGgufLayer, .interleaves_rope = true},
    .build = build_smollm3,
};

}  // namespace redline
