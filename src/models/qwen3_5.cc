// Qwen3.5, its text part: gated delta networks, gated attention in every fourth layer, SwiGLU. Without images the three
// axes of its rope are one.
#include "models/gated_delta.h"
#include "models/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_qwen3_5(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(DecoderConfig c, read_gated_delta_decoder(checkpoint));
  REDLINE_ASSIGN(const GatedDeltaConfig delta, read_gated_delta_config(checkpoint, c.num_layers));
  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t layer, Value x) {
    if (layer == 0) ignore_prediction_heads(b.weights(), checkpoint);
    return gated_delta_mixer(b, x, delta);
  };
  return build_llama_decoder("qwen3_5", std::move(c), checkpoint, {}, parts);
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
    .gguf_keys = set_gated_delta_keys,
};

}  // namespace redline
