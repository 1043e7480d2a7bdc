// Prompts as text encoders take them: token ids of one length.
#pragma once

#include <memory>

#include "models/image_models.h"

namespace redline {

struct PromptIds {
  std::vector<int32_t> ids;  ///< as many as were asked for
  int64_t length = 0;        ///< of them before the padding, end token included
  int64_t pooled_row = 0;    ///< where CLIP reads the whole text
  int64_t cut = 0;           ///< tokens of the prompt that did not fit
  std::string cut_text;      ///< what they say, as far as the vocabulary can spell it
};

/// A tokenizer that goes with an encoder. Immutable: encode may be called from any thread.
class PromptTokenizer {
 public:
  /// The folder of a tokenizer, as tokenizer_from_folder reads it. invalid_argument: it makes ids that the encoder's
  /// vocabulary does not have, it ends texts with another token than the one at which the encoder reads them, or
  /// nothing says what fills up short texts.
  static Result<PromptTokenizer> open(const std::string& folder, const TextEncoderModel& model);

  /// `tokens` ids (0: max_tokens()): begin token, the prompt, end token, padding. A prompt that is too long loses its
  /// end, which is counted in `cut`. Special tokens in the prompt count as such, as in transformers. invalid_argument:
  /// `tokens` leaves no room for the begin and end tokens, or is more than the encoder has positions.
  Result<PromptIds> encode(std::string_view prompt, int64_t tokens = 0) const;
  /// What tokenizer and encoder both have room for.
  int64_t max_tokens() const { return max_tokens_; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  int64_t max_tokens_ = 0, most_positions_ = 0;
  int32_t pooled_token_ = -1;
};

}  // namespace redline
