// Qwen2 and Qwen2.5: a Llama with biases on queries, keys and values, and sliding windows in some layers (Yang et al.
// 2024, arXiv:2407.10671).
#include "models/blocks/rope_config.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_with_biases(const char* name, const nlohmann::json& config, const Checkpoint& checkpoint,
                                        const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.max_positions = 32768}));
  REDLINE_ASSIGN(c.window, read_layer_windows(config, c.num_layers));
  return build_llama_decoder(name, std::move(c), checkpoint, outputs, {.qkv = true});
}

Result<LanguageModel> build_qwen2(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  return build_with_biases("qwen2", checkpoint.config, checkpoint, outputs);
}

/// Returns the config of the text part of Qwen2-VL or Qwen2.5-VL with defaults. Without images the three axes of its
/// rope are equal.
nlohmann::json qwen2_vl_common_config(const nlohmann::json& config) {
  return with_defaults(with_rope_theta(config, 1e6),
                       {{"rms_norm_eps", 1e-5}, {"num_key_value_heads", 8}, {"max_window_layers", 80}});
}

Result<LanguageModel> build_qwen2_vl(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  return build_with_biases("qwen2_vl",
                           checkpoint.gguf_names ? checkpoint.config : qwen2_vl_common_config(checkpoint.config),
                           checkpoint, outputs);
}

// Some folders have the settings of the language model beside those of the image encoder.
constexpr std::string_view kQwen2VlTypes[] = {"qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text"};

}  // namespace

extern const ModelFamily kQwen2Family = {
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .gguf = {.architecture = "qwen2",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .quantize = {.is_large_at_80_layers = true}},
    .build = build_qwen2,
};

extern const ModelFamily kQwen2VlFamily = {
    .model_type = "qwen2_vl_text",
    .architecture = "Qwen2VLForConditionalGeneration",
    .gguf = {.architecture = "qwen2vl",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .export_architecture = "qwen2",
             .quantize = {.is_large_at_80_layers = true}},
    .build = build_qwen2_vl,
    .other_types = kQwen2VlTypes,
    .common_config = qwen2_vl_common_config,
};

}  // namespace redline
