// Qwen3.5, its text part: gated delta networks, gated attention in every fourth layer, SwiGLU or a mixture of experts
// with a gated expert of all tokens. Without images the three axes of its rope are one.
#include "models/blocks/gated_delta.h"
#include "models/blocks/moe.h"
#include "models/text/llama.h"

namespace redline {
namespace {

MoeConfig read_qwen3_5_experts(ConfigReader& r) {
  MoeConfig moe = read_moe_config(r, true);
  moe.router.normalizes = true;
  moe.shared_intermediate_size = r.integer("shared_expert_intermediate_size", 1, int64_t{1} << 24, 512);
  moe.has_shared_gate = true;
  return moe;
}

Result<LanguageModel> build_qwen3_5(const Checkpoint& checkpoint, const DecoderOutputs& outputs, bool has_experts) {
  REDLINE_ASSIGN(DecoderConfig c, read_gated_delta_decoder(checkpoint));
  REDLINE_ASSIGN(const GatedDeltaConfig delta, read_gated_delta_config(checkpoint, c.num_layers));
  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t layer, Value x) {
    if (layer == 0) ignore_prediction_heads(b.weights(), checkpoint);
    return gated_delta_mixer(b, x, delta);
  };
  MoeConfig moe;
  if (has_experts) {
    ConfigReader r(checkpoint.config);
    moe = read_qwen3_5_experts(r);
    REDLINE_TRY(r.status());
    parts.mlp = [&](LayerBuilder& b, int64_t, Value x) { return moe_block(b, x, moe); };
  }
  return build_llama_decoder(has_experts ? "qwen3_5_moe" : "qwen3_5", std::move(c), checkpoint, outputs, {}, parts);
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

Status set_qwen3_5_moe_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  ConfigReader r(checkpoint.config);
  set_moe_keys(read_qwen3_5_experts(r), set);
  REDLINE_TRY(r.status());
  return set_qwen3_5_keys(checkpoint, c, set);
}

}  // namespace

extern const ModelFamily kQwen35Family = {
    .model_type = "qwen3_5_text",
    .architecture = "Qwen3_5ForCausalLM",
    .gguf = {.architecture = "qwen35",
             .top = kLlamaGgufTop,
             .layer = kGatedDeltaGgufLayer,
             .is_recurrent = true,
             .alternates_groups = true,
             .read_keys = read_gated_delta_keys},
    .build = [](const Checkpoint& checkpoint,
                const DecoderOutputs& outputs) { return build_qwen3_5(checkpoint, outputs, false); },
    .gguf_parts = [](const Checkpoint& checkpoint, const DecoderConfig& c,
                     std::string_view name) { return gated_delta_gguf_parts(checkpoint, c, name, true); },
    .gguf_keys = set_qwen3_5_keys,
};

extern const ModelFamily kQwen35MoeFamily = {
    .model_type = "qwen3_5_moe_text",
    .architecture = "Qwen3_5MoeForCausalLM",
    .gguf = {.architecture = "qwen35moe",
             .top = kLlamaGgufTop,
             .layer = kGatedDeltaGgufLayer,
             .more_layer = kGgufExperts,
             .is_recurrent = true,
             .alternates_groups = true,
             .has_experts = true,
             .read_keys = read_gated_delta_keys},
    .build = [](const Checkpoint& checkpoint,
                const DecoderOutputs& outputs) { return build_qwen3_5(checkpoint, outputs, true); },
    .gguf_parts = [](const Checkpoint& checkpoint, const DecoderConfig& c,
                     std::string_view name) { return gated_delta_gguf_parts(checkpoint, c, name, true); },
    .gguf_keys = set_qwen3_5_moe_keys,
};

}  // namespace redline
