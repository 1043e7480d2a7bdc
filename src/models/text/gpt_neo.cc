// GPT-Neo: learned positions, layer norms, unscaled scores, and windows in some layers (Black et al. 2021).
#include <algorithm>

#include "graph/ops/add.h"
#include "models/text/llama.h"

namespace redline {
namespace {

/// Returns, for each layer, "global" or "local": from "attention_layers", else from "attention_types", pairs of a list of
/// kinds and a number of repetitions.
Result<std::vector<std::string>> read_attention_kinds(const nlohmann::json& config, int64_t num_layers) {
  std::vector<std::string> kinds;
  const auto add_kinds = [&](const nlohmann::json& list) {
    for (const auto& kind : list)
      if (kind.is_string() && std::ssize(kinds) < num_layers) kinds.push_back(kind.get<std::string>());
  };
  const auto layers = config.find("attention_layers"), types = config.find("attention_types");
  if (layers != config.end() && layers->is_array()) add_kinds(*layers);
  else if (types != config.end() && types->is_array()) {
    for (const auto& entry : *types) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_array() || !entry[1].is_number_integer())
        return invalid_argument("config: attention_types must list pairs of kinds and a number");
      // A repetition adds a layer at least, so more of them than layers change nothing.
      for (int64_t i = 0; i < std::min(entry[1].get<int64_t>(), num_layers); ++i) add_kinds(entry[0]);
    }
  } else {
    for (int64_t i = 0; i < num_layers; ++i) kinds.emplace_back(i % 2 == 0 ? "global" : "local");
  }
  if (std::ssize(kinds) != num_layers)
    return invalid_argument("config: attention_types names {} of {} layers", kinds.size(), num_layers);
  for (const std::string& kind : kinds)
    if (kind != "global" && kind != "local")
      return unsupported("config: attention type \"{}\"; Redline runs global and local", kind);
  return kinds;
}

Result<LanguageModel> build_gpt_neo(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  constexpr std::pair<const char*, const char*> kKeys[] = {{"num_layers", "num_hidden_layers"},
                                                           {"num_heads", "num_attention_heads"},
                                                           {"activation_function", "hidden_act"},
                                                           {"layer_norm_epsilon", "layer_norm_eps"}};
  nlohmann::json config = with_common_names(checkpoint.config, kKeys);
  ConfigReader r(config);
  if (!r.has("intermediate_size")) config["intermediate_size"] = 4 * r.integer("hidden_size", 1, int64_t{1} << 22);
  const int64_t window = r.integer("window_size", 1, int64_t{1} << 40, 256);
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.max_positions = 2048,
                                                               .tied = true,
                                                               .activation = Activation::kGeluTanh,
                                                               .any_activation = true,
                                                               .norm_eps = "layer_norm_eps",
                                                               .norm_eps_value = 1e-5}));
  REDLINE_ASSIGN(const std::vector<std::string> kinds, read_attention_kinds(config, c.num_layers));
  for (size_t i = 0; i < kinds.size(); ++i) c.window[i] = kinds[i] == "local" ? window : 0;
  c.norm = {.layer = true, .bias = true};
  c.attention_scale = 1;
  c.unrotated.assign(kinds.size(), true);
  c.names = {.layers = "transformer.h.",
             .embedding = "transformer.wte",
             .norm = "transformer.ln_f",
             .positions = "transformer.wpe"};
  const SelfAttention attention = {.output_bias = true,
                                   .q = "attn.attention.q_proj",
                                   .k = "attn.attention.k_proj",
                                   .v = "attn.attention.v_proj",
                                   .output = "attn.attention.out_proj"};
  auto layer = [&](LayerBuilder& b, Value x) {
    for (const char* buffer : {"attn.attention.bias", "attn.attention.masked_bias"})
      b.weights().ignore(b.scope() + buffer);
    x = add(b.graph(), x, self_attention(b, b.norm(x, "ln_1", c.hidden_size), attention));
    return add(b.graph(), x, b.plain_mlp(b.norm(x, "ln_2", c.hidden_size), "mlp.c_fc", "mlp.c_proj", true));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("gpt_neo", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

}  // namespace

extern const ModelFamily kGptNeoFamily = {
    .model_type = "gpt_neo",
    .architecture = "GPTNeoForCausalLM",
    .gguf = {},
    .build = build_gpt_neo,
};

}  // namespace redline
