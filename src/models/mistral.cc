// Mistral 7B and its kin: a Llama whose layers may look back only `sliding_window` positions (Jiang et al. 2023,
// arXiv:2310.06825).
#include "models/registry.h"

namespace redline {

Result<LanguageModel> build_mistral(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config, {.num_kv_heads = 8, .max_positions = 131072}));
  ConfigReader r(checkpoint.config);
  // The first releases leave the key out and mean 4096; null means no window.
  constexpr int64_t kWindowWhenAbsent = 4096;
  const bool absent = checkpoint.format == "safetensors" && !checkpoint.config.contains("sliding_window");
  if (absent || r.has("sliding_window"))
    c.window.assign(c.window.size(), absent ? kWindowWhenAbsent : r.integer("sliding_window", 1, int64_t{1} << 40));
  REDLINE_TRY(r.status());
  return build_llama_decoder("mistral", std::move(c), checkpoint, {});
}

}  // namespace redline
