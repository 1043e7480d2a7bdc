// Qwen3.5, its text part: gated delta networks, gated attention in every fourth layer, SwiGLU. Without images the three
// axes of its rope are one.
#include "models/gated_delta.h"
#include "models/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_qwen3_5(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_gated_delta_decoder(checkpoint));
  REDLINE_ASSIGN(const GatedDeltaConfig delta, read_gated_delta_config(checkpoint, c.num_layers));
  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t layer, Value x) {
    if (layer == 0) ignore_prediction_heads(b.weights(), checkpoint);
    return gated_delta_mixer(b, x, delta);
  };
  return build_llama_decoder("qwen3_5", std::move(c), checkpoint, outputs, {}, parts);
}

/// Returns the channels of each head that rotate by time, height and width of an image. llama.cpp requires them.
Result<std::vector<int32_t>> read_rope_sections(const nlohmann::json& config) {
  constexpr size_t kSections = 4;
  std::vector<int32_t> sections = {11, 11, 10};
  for (const char* key : {"rope_parameters", "rope_scaling"})
    if (const auto rope = config.find(key);
        rope != config.end() && rope->is_object() && rope->contains("mrope_section")) {
      const nlohmann::json& stated = (*rope)["mrope_section"];
      sections.clear();
      for (const nlohmann::json& size : stated.is_array() ? stated : nlohmann::json::array())
        if (size.is_number_integer()) sections.push_back(size.get<int32_t>());
      if (sections.empty() || sections.size() > kSections || sections.size() != stated.size())
        return invalid_argument("config: mrope_section must be a list of up to {} numbers", kSections);
    }
  sections.resize(kSections);
  return sections;
}

Status set_qwen3_5_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  REDLINE_ASSIGN(const std::vector<int32_t> sections, read_rope_sections(checkpoint.config));
  set.integers("rope.dimension_sections", sections);
  return set_gated_delta_keys(checkpoint, c, set);
}

}  // namespace

extern const ModelFamily kQwen35Family = {
    .model_type = "qwen3_5_text",
    .architecture = "Qwen3_5ForCausalLM",
    .gguf = {.architecture = "qwen35",
             .top = kLlamaGgufTop,
             .layer = kGatedDeltaGgufLayer,
             .is_recurrent = true,
             .alternates_groups = true},
    .build = build_qwen3_5,
    .gguf_parts = [](const Checkpoint& checkpoint, const DecoderConfig& c,
                     std::string_view name) { return gated_delta_gguf_parts(checkpoint, c, name, true); },
    .gguf_keys = set_qwen3_5_keys,
};

}  // namespace redline
