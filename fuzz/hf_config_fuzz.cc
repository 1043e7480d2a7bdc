// Reads any bytes as tokenizer_config.json, generation_config.json or special_tokens_map.json (the first byte chooses).
#include "fuzz_input.h"
#include "text/hf_config.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text = fuzz_text(data + 1, size - 1);
  HfConfig config;
  Status status;
  switch (data[0] % 3) {
    case 0: {
      auto read = read_hf_config(text);
      if (read.ok()) config = std::move(read).value();
      else status = read.status();
      break;
    }
    case 1: status = read_generation_config(text, config); break;
    default: status = read_special_tokens_map(text, config);
  }
  require(status.ok() || !status.message().empty());
  require(config.max_tokens >= 0);
  for (const auto& [id, token] : config.added_tokens) require(id >= 0 && token.id == id && !token.content.empty());
  (void)pad_token_of(config);
  return 0;
}
