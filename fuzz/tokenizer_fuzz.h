// Checks the properties that every tokenizer must have, whatever its file format.
#pragma once

#include "fuzz_input.h"
#include "text/gguf_vocab.h"

namespace redline {

/// Encodes and decodes a few texts and ids, if the tokenizer was read without an error.
inline void try_tokenizer(const Result<std::unique_ptr<Tokenizer>>& result) {
  if (!result.ok()) return require(!result.status().message().empty());
  const Tokenizer& tokenizer = **result;
  for (const std::string_view text : {"", "a b ab", " <s> </s>\n", "\xe2\x96\x81\xff\xc3", "1234 it's"}) {
    for (const bool parse_special : {false, true}) {
      const auto ids = tokenizer.encode(text, {true, parse_special});
      for (const TokenId id : ids) require(id >= 0 && id < tokenizer.vocab_size());
      (void)tokenizer.decode(ids, true);
      StreamDecoder stream(tokenizer, true);
      for (const TokenId id : ids) (void)stream.push(id);
      (void)stream.finish();
    }
  }
  for (const TokenId id : {-1, 0, 5, 1 << 30}) (void)tokenizer.piece(id), (void)tokenizer.token_bytes(id, true);
}

}  // namespace redline
