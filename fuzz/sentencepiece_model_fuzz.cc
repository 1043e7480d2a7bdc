// Reads any bytes as a SentencePiece tokenizer.model.
#include "tokenizer_fuzz.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try_tokenizer(tokenizer_from_sentencepiece(fuzz_text(data, size), ""));
  return 0;
}
