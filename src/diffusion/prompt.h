// Tokenizes prompts for text encoders: token ids, padded or truncated to a fixed length.
#pragma once

#include <memory>

#include "models/image/image_models.h"

namespace redline {

struct PromptIds {
  std::vector<int32_t> ids;  ///< the requested number of ids
  int64_t length = 0;        ///< number of ids before the padding, end token included
  int64_t pooled_row = 0;    ///< position of CLIP's pooled output
  int64_t cut = 0;           ///< number of truncated tokens of the prompt
  std::string cut_text;      ///< text of the truncated tokens
};

/// The tokenizer of a text encoder. Immutable: encode may be called from any thread.
class PromptTokenizer {
 public:
  /// Opens the folder of a tokenizer, as read by tokenizer_from_folder(). invalid_argument: its vocabulary is larger
  /// than the encoder's, it does not end texts with the token at which the encoder pools, or it has no padding token.
  static Result<PromptTokenizer> open(const std::string& folder, const TextEncoderModel& model);

  /// Returns `tokens` ids (0: max_tokens()): begin token, the prompt, end token, padding. A prompt that is too long is
  /// truncated, and `cut` is the number of removed tokens. Names of special tokens in the prompt become special tokens,
  /// as in transformers. invalid_argument: `tokens` is too small for the begin and end tokens, or above the encoder's
  /// number of positions.
  Result<PromptIds> encode(std::string_view prompt, int64_t tokens = 0) const;
  /// Returns the smaller of the limits of tokenizer and encoder.
  int64_t max_tokens() const { return max_tokens_; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  int64_t max_tokens_ = 0, max_positions_ = 0;
  int32_t pooled_token_ = -1;
};

}  // namespace redline
