// Finds added tokens in a text, before normalization and pre-tokenization.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace redline {

/// An entry of tokenizer.json's added_tokens. Control and user-defined tokens of GGUF files use the defaults.
struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;      ///< found only with EncodeOptions.parse_special
  bool single_word = false;  ///< not matched inside a word
  bool lstrip = false;       ///< also consumes white space on its left
  bool rstrip = false;
};

/// Part of a text: a token found there, or the text in between (id -1).
struct MarkedText {
  TokenId id = -1;
  std::string_view text;
};

/// Finds added tokens from left to right, the longest one at each position.
class AddedTokenFinder {
 public:
  Status add(AddedToken token);
  /// Calls visit(part) for the non-empty parts of `text`, until visit returns false or `work` is stopped.
  void for_each_part(std::string_view text, bool parse_special, EncodeWork& work,
                     const std::function<bool(MarkedText)>& visit) const;
  bool empty() const { return tokens_.empty(); }
  /// Returns true if a token also consumes white space, of any length.
  bool strips() const;

 private:
  std::vector<AddedToken> tokens_;
  PrefixMatcher plain_, all_;  ///< values: indices into tokens_
};

}  // namespace redline
