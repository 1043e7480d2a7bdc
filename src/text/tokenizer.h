// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline {

using TokenId = int32_t;

struct EncodeOptions {
  bool add_special = true;  ///< put BOS (and EOS) where the model's tokenizer does
  bool parse_special =
      false;  ///< true: "<|im_end|>" in the text becomes its token; false: special tokens are plain text
};

/// One vocabulary with its rules. Immutable after loading: encode and decode may be called from any thread.
/// The formats: GGUF metadata (tokenizer.ggml.*), tokenizer.json, SentencePiece tokenizer.model, llama2.c
/// tokenizer.bin.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Any bytes: invalid UTF-8 is encoded too (as byte tokens where the vocabulary has them, else as U+FFFD).
  virtual std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const = 0;
  /// The bytes of one token as they stand inside a text (no prefix-space rule): may be part of a UTF-8 sequence.
  /// Control tokens give "" unless `special`. An id outside the vocabulary gives "".
  virtual std::string token_bytes(TokenId id, bool special = false) const = 0;
  /// Whole sequence, with the decoder's rules for the start of text (the prefix space is dropped).
  virtual std::string decode(const std::vector<TokenId>& ids, bool special = false) const = 0;

  virtual int64_t vocab_size() const = 0;
  virtual TokenId bos() const = 0;    ///< -1 when there is none
  virtual bool adds_bos() const = 0;  ///< encode(add_special) starts with bos()
  /// What encode(add_special) puts around the text.
  virtual const std::vector<TokenId>& prefix() const = 0;
  virtual const std::vector<TokenId>& suffix() const = 0;
  virtual TokenId pad() const = 0;         ///< what fills up short texts of a batch; -1 when the files name none
  virtual int64_t max_tokens() const = 0;  ///< model_max_length, those around the text counted; 0: not said
  /// Tokens that end a generation (eos, eot, and so on): as the tokenizer's own files say. Sorted.
  virtual const std::vector<TokenId>& stop_tokens() const = 0;
  /// The piece as the vocabulary spells it ("▁the", "Ġthe", "<0x0A>"); "" outside the vocabulary.
  virtual std::string piece(TokenId id) const = 0;
  /// -1 when the vocabulary has no such piece.
  virtual TokenId find(std::string_view piece) const = 0;
  /// "spm", "bpe": for inspect.
  virtual std::string_view kind() const = 0;
  /// Name of the pre-tokenizer ("llama-bpe", "tokenizer.json", ""): for inspect.
  virtual std::string_view pre_tokenizer() const = 0;
  virtual bool is_special(TokenId id) const = 0;
  /// encode() puts a space before the text, which decoding takes away again.
  virtual bool drops_prefix_space() const = 0;
};

/// Drops the prefix space of the first token, holds back incomplete UTF-8 until its bytes are there, and turns bytes
/// that never become valid into U+FFFD. One per generated sequence.
class StreamDecoder {
 public:
  /// `tokenizer` outlives the decoder. `at_start`: the first token begins the text (prefix-space rule applies).
  StreamDecoder(const Tokenizer& tokenizer, bool at_start);
  /// Text that became complete with this token; may be "".
  std::string push(TokenId id);
  /// What is left at the end; incomplete bytes become U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool at_start_;
  std::string pending_;
};

}  // namespace redline
