// Reads any bytes as CLIP's vocab.json, a zero byte, and merges.txt.
#include "text/hf_config.h"
#include "tokenizer_fuzz.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz_text(data, size);
  const size_t cut = std::min(text.find('\0'), text.size());
  HfConfig config;
  config.tokenizer_class = "CLIPTokenizer";
  try_tokenizer(
      tokenizer_from_vocab_and_merges(text.substr(0, cut), text.substr(std::min(cut + 1, text.size())), config));
  return 0;
}
