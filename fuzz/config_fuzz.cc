// Reads any bytes as a model's config.json.
#include "config_fuzz.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = nlohmann::json::parse(fuzz_text(data, size), nullptr, false);
  if (config.is_discarded()) return 0;
  try_config(config);
  // The parts are read on their own, so that an error in one setting does not hide the rest.
  for (const int64_t layers : {1, 3})
    if (const auto windows = read_layer_windows(config, layers); windows.ok())
      require(static_cast<int64_t>(windows->size()) == layers);
  for (const int64_t head_dim : {2, 64})
    if (const auto rope = read_rope_config(config, head_dim, 2048); rope.ok())
      require(2 * static_cast<int64_t>(rope->inverse_frequencies.size()) <= head_dim);
  require(rope_context(config, 2048) >= 2048);
  return 0;
}
