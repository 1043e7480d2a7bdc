// Mistral 7B and its kin: a Llama whose layers may look back only `sliding_window` positions (Jiang et al. 2023,
// arXiv:2310.06825).
#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_mistral(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config, {.num_kv_heads = 8, .max_positions = 131072}));
  ConfigReader r(checkpoint.config);
  // A missing key means 4096 (the first releases), null means no window.
  constexpr int64_t kWindowWhenAbsent = 4096;
  const bool absent = !checkpoint.config.contains("sliding_window");
  if (absent || r.has("sliding_window"))
    c.window.assign(c.window.size(), absent ? kWindowWhenAbsent : r.integer("sliding_window", 1, int64_t{1} << 40));
  REDLINE_TRY(r.status());
  return build_llama_decoder("mistral", std::move(c), checkpoint, outputs, {});
}

/// Ministral: windows in the layers that layer_types names; without it in all layers, of 4096 unless sliding_window is
/// null.
Result<LanguageModel> build_ministral(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config, {.num_kv_heads = 8, .max_positions = 131072}));
  ConfigReader r(checkpoint.config);
  const bool is_null = checkpoint.config.contains("sliding_window") && !r.has("sliding_window");
  const int64_t window = is_null ? 0 : r.integer("sliding_window", 1, int64_t{1} << 40, 4096);
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(c.window, windows_of_layers(checkpoint.config, c.num_layers, window, [](int64_t) { return true; }));
  return build_llama_decoder("ministral", std::move(c), checkpoint, outputs, {});
}

/// Returns the settings of rope that the first Ministral 3 has.
nlohmann::json ministral3_common_config(nlohmann::json config) {
  if (!config.contains("rope_parameters") && !config.contains("rope_scaling")) {
    config = with_rope_theta(std::move(config), 1e6);
    config["rope_scaling"] = {{"rope_type", "yarn"},
                              {"factor", 16.0},
                              {"original_max_position_embeddings", 16384},
                              {"beta_fast", 32.0},
                              {"beta_slow", 1.0},
                              {"mscale", 1.0},
                              {"mscale_all_dim", 1.0},
                              {"llama_4_scaling_beta", 0.1}};
  }
  return config;
}

/// Ministral 3: queries grow with their position beyond the original context (Mistral AI 2026, arXiv:2601.08584).
Result<LanguageModel> build_ministral3(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  nlohmann::json config = checkpoint.gguf_names ? checkpoint.config : ministral3_common_config(checkpoint.config);
  nlohmann::json& rope =
      config[config.value("rope_scaling", nlohmann::json()).is_object() ? "rope_scaling" : "rope_parameters"];
  if (checkpoint.gguf_names && rope.is_object()) {
    if (rope.contains("log_multiplier")) rope["mscale"] = rope["mscale_all_dim"] = rope["log_multiplier"];
    if (config.contains("llama_4_scaling_beta")) rope["llama_4_scaling_beta"] = config["llama_4_scaling_beta"];
  }
  REDLINE_ASSIGN(DecoderConfig c,
                 read_decoder_config(
                     config, {.head_dim = 128, .num_kv_heads = 8, .max_positions = 262144, .norm_eps_value = 1e-5}));
  ConfigReader r(config);
  if (r.has("sliding_window")) c.window.assign(c.window.size(), r.integer("sliding_window", 1, int64_t{1} << 40));
  const nlohmann::json none = nlohmann::json::object();
  ConfigReader s(rope.is_object() ? rope : none);
  const double beta = s.number("llama_4_scaling_beta", 0, 1e6, 0.0);
  const int64_t original = s.integer("original_max_position_embeddings", 1, int64_t{1} << 40, c.max_positions);
  REDLINE_TRY(r.status());
  REDLINE_TRY(s.status());
  if (beta > 0) {
    if (2 * static_cast<int64_t>(c.rope.inverse_frequencies.size()) != c.head_dim)
      return unsupported("config: llama_4_scaling_beta with rope on a part of each head");
    c.query_rope = c.rope;
    c.query_rope->growth = {beta, original};
  }
  return build_llama_decoder("ministral3", std::move(c), checkpoint, outputs, {});
}

Status set_ministral3_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  const nlohmann::json config = ministral3_common_config(checkpoint.config);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = config.find(key);
    if (rope == config.end() || !rope->is_object()) continue;
    ConfigReader s(*rope);
    const double own = s.number("mscale", 0, 1e12, 0.0), all = s.number("mscale_all_dim", 0, 1e12, 0.0);
    REDLINE_TRY(s.status());
    if (own != all) return unsupported("GGUF has no key for an mscale that is not mscale_all_dim");
    if (all != 0) set.number("rope.scaling.yarn_log_multiplier", all);
  }
  if (c.query_rope) set.number("attention.temperature_scale", c.query_rope->growth.beta);
  return {};
}

}  // namespace

extern const ModelFamily kMinistral3Family = {
    .model_type = "ministral3",
    .architecture = "Ministral3ForCausalLM",
    .gguf = {.architecture = "mistral3",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .interleaves_rope = true,
             .window_every = 1,
             .read_keys =
                 [](GgufKeyReader& keys) { keys.number("attention.temperature_scale", "llama_4_scaling_beta"); }},
    .build = build_ministral3,
    .common_config = [](const nlohmann::json& config) { return without_magnitudes(ministral3_common_config(config)); },
    .gguf_keys = set_ministral3_keys,
};

extern const ModelFamily kMinistralFamily = {
    .model_type = "ministral",
    .architecture = "MinistralForCausalLM",
    .gguf = {.top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .interleaves_rope = true,
             .window_every = 1,
             .export_architecture = "llama"},
    .build = build_ministral,
};

extern const ModelFamily kMistralFamily = {
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .gguf = {.architecture = "mistral",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .interleaves_rope = true,
             .window_every = 1,
             .export_architecture = "llama"},
    .build = build_mistral,
};

}  // namespace redline
