// Tokens that are found in the text before anything else is done with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace redline {

/// tokenizer.json's added_tokens; GGUF's control and user-defined tokens have the defaults.
struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;      ///< only found with EncodeOptions.parse_special
  bool single_word = false;  ///< not inside a word
  bool lstrip = false;       ///< takes the white space on its left with it
  bool rstrip = false;
};

/// A part of a text: a token found there, or text in between (id -1).
struct TextPart {
  TokenId id = -1;
  std::string_view text;
};

/// Finds tokens from left to right, the longest at each place.
class AddedTokenFinder {
 public:
  Status add(AddedToken token);
  /// Appends the parts of `text`; empty text in between is left out.
  void split(std::string_view text, bool parse_special, std::vector<TextPart>& parts) const;
  bool empty() const { return tokens_.empty(); }

 private:
  std::vector<AddedToken> tokens_;
  PrefixMatcher plain_, all_;  ///< values: indexes into tokens_
};

}  // namespace redline
