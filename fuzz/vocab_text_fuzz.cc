// Reads any bytes as vocab.txt of BERT, or as RWKV's list of literals (the first byte chooses).
#include "text/hf_config.h"
#include "text/rwkv.h"
#include "tokenizer_fuzz.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text = fuzz_text(data + 1, size - 1);
  HfConfig config;
  config.unk_token = "[UNK]";
  config.lowercase = (data[0] & 2) != 0;
  try_tokenizer(data[0] % 2 == 0 ? tokenizer_from_vocab_txt(text, config) : tokenizer_from_rwkv_vocab(text, config));
  if (const auto literal = parse_python_literal(text); !literal.ok()) require(!literal.status().message().empty());
  (void)unescape_rwkv_token(text);
  return 0;
}
