// Qwen2 and Qwen2.5: a Llama with biases on queries, keys and values, and sliding windows in some layers (Yang et al.
// 2024, arXiv:2407.10671).
#include "models/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_qwen2(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config, {.max_positions = 32768}));
  REDLINE_ASSIGN(c.window, read_layer_windows(checkpoint.config, c.num_layers));
  return build_llama_decoder("qwen2", std::move(c), checkpoint, outputs, {.qkv = true});
}

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

}  // namespace redline
