// Reads any bytes as a tokenizer.json, with a tokenizer_config.json after a zero byte, if there is one.
#include "tokenizer_fuzz.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz_text(data, size);
  const size_t cut = text.find('\0');
  try_tokenizer(tokenizer_from_json(text.substr(0, cut), cut == text.npos ? std::string_view() : text.substr(cut + 1)));
  return 0;
}
