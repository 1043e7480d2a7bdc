// Reads any bytes as llama2.c's tokenizer.bin, for a few vocabulary sizes.
#include "tokenizer_fuzz.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const int64_t vocab_size : {int64_t{1}, int64_t{262}, int64_t{1} << 40}) {
    auto vocab = vocab_from_llama2c(fuzz_text(data, size), vocab_size);
    if (!vocab.ok()) {
      require(!vocab.status().message().empty());
      continue;
    }
    require(static_cast<int64_t>(vocab->tokens.size()) == vocab_size);
    try_tokenizer(tokenizer_from_gguf(std::move(vocab).value()));
  }
  return 0;
}
