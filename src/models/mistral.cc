// Mistral 7B and its kin: a Llama whose layers may look back only `sliding_window` positions (Jiang et al. 2023,
// arXiv:2310.06825).
#include "models/llama.h"

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

}  // namespace

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
