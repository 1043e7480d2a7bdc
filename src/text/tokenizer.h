// Converts text to token ids and back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline {

using TokenId = int32_t;

struct EncodeOptions {
  bool add_special = true;  ///< add BOS (and EOS) as the model's tokenizer does
  bool parse_special =
      false;  ///< true: "<|im_end|>" in the text becomes its token; false: special tokens are plain text
};

/// Counts the work of one encode() call in slices of bytes and stops it at a number of tokens, or if a callback after a
/// slice returns false. Used by one thread.
class EncodeWork {
 public:
  static constexpr size_t kSliceBytes = size_t{1} << 16;
  using OnSlice = std::function<bool(int64_t bytes)>;

  EncodeWork() = default;
  /// encode() stops soon after there are more than `max_tokens` ids. `on_slice`: as EncodeLimits::on_slice.
  explicit EncodeWork(int64_t max_tokens, OnSlice on_slice = {})
      : max_tokens_(max_tokens), on_slice_(std::move(on_slice)) {}

  /// Counts processed bytes. Returns false if the call must stop.
  bool add(size_t bytes) {
    pending_ += bytes;
    if (pending_ >= kSliceBytes) end_slices();
    return !is_cancelled_;
  }
  /// Returns false if the call may not have this many ids.
  bool has_room(size_t num_ids) {
    is_full_ = is_full_ || num_ids > static_cast<size_t>(max_tokens_);
    return !is_full_;
  }
  bool is_cancelled() const { return is_cancelled_; }
  bool is_stopped() const { return is_cancelled_ || is_full_; }

 private:
  void end_slices();
  int64_t max_tokens_ = INT64_MAX;
  OnSlice on_slice_;
  size_t pending_ = 0;
  bool is_cancelled_ = false, is_full_ = false;
};

/// Special tokens around two texts that are encoded as one, as cross-encoders read them: prefix, first text, middle,
/// second text, suffix.
struct PairTemplate {
  std::vector<TokenId> prefix, middle, suffix;
  bool marks_second = false;  ///< the second text and `suffix` have token type 1
};

/// A vocabulary with its rules. Immutable after loading: encode and decode may be called from any thread. Formats: GGUF
/// metadata (tokenizer.ggml.*), tokenizer.json, SentencePiece tokenizer.model, llama2.c tokenizer.bin.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Returns the ids of a text of any bytes: invalid UTF-8 is encoded as byte tokens if the vocabulary has them, else
  /// as U+FFFD.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const {
    EncodeWork work;
    std::vector<TokenId> ids;
    encode(text, options, work, ids);
    return ids;
  }
  /// Appends the ids of `text`. If `work` stops the call, the ids are those of a part of the text. Time is O(n log n)
  /// in the bytes of the text.
  virtual void encode(std::string_view text, EncodeOptions options, EncodeWork& work,
                      std::vector<TokenId>& ids) const = 0;
  /// Returns the maximum number of bytes of text that become one token; 0: there is no maximum.
  virtual int64_t max_token_bytes() const = 0;
  /// Returns the bytes of one token within a text (without the prefix-space rule), which may be part of a UTF-8
  /// sequence. "" for control tokens unless `special`, and for ids outside the vocabulary.
  virtual std::string token_bytes(TokenId id, bool special = false) const = 0;
  /// Decodes a whole sequence, with the decoder's rules for the start of text (the prefix space is dropped).
  virtual std::string decode(const std::vector<TokenId>& ids, bool special = false) const = 0;

  virtual int64_t vocab_size() const = 0;
  virtual TokenId bos() const = 0;    ///< -1: the tokenizer has none
  virtual bool adds_bos() const = 0;  ///< encode() with add_special starts with bos()
  /// Return the tokens that encode() with add_special puts before and after the text.
  virtual const std::vector<TokenId>& prefix() const = 0;
  virtual const std::vector<TokenId>& suffix() const = 0;
  virtual const PairTemplate& pair() const = 0;
  virtual TokenId pad() const = 0;         ///< fills up short texts of a batch; -1: the files have none
  virtual int64_t max_tokens() const = 0;  ///< model_max_length, including prefix and suffix; 0: not given
  /// Returns the tokens that end a generation (eos, eot, and so on) according to the tokenizer's files, sorted.
  virtual const std::vector<TokenId>& stop_tokens() const = 0;
  /// Returns the piece as spelled in the vocabulary ("▁the", "Ġthe", "<0x0A>"); "" for ids outside the vocabulary.
  virtual std::string piece(TokenId id) const = 0;
  /// Returns the id of a piece; -1 if the vocabulary does not have it.
  virtual TokenId find(std::string_view piece) const = 0;
  /// Returns the kind of the tokenizer, such as "spm" or "bpe", for `inspect`.
  virtual std::string_view kind() const = 0;
  /// Returns the name of the pre-tokenizer ("llama-bpe", "tokenizer.json", ""), for `inspect`.
  virtual std::string_view pre_tokenizer() const = 0;
  virtual bool is_special(TokenId id) const = 0;
  /// Returns true if encode() prepends a space that decode() removes.
  virtual bool drops_prefix_space() const = 0;
};

/// Incremental decoder, one per generated sequence. Drops the prefix space of the first token, holds back incomplete
/// UTF-8 until its remaining bytes arrive, and replaces invalid bytes by U+FFFD.
class StreamDecoder {
 public:
  /// `tokenizer` must outlive the decoder. `at_start`: the first token begins the text (prefix-space rule applies).
  /// `special`: control tokens appear in the text.
  StreamDecoder(const Tokenizer& tokenizer, bool at_start, bool special = false);
  /// Returns the text that is completed by this token; may be "".
  std::string push(TokenId id);
  /// Returns the remaining text; incomplete bytes become U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool at_start_, special_;
  std::string pending_;
};

}  // namespace redline
