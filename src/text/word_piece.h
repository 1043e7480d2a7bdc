// WordPiece, the token model of BERT and its descendants.
#pragma once

#include "text/bpe.h"

namespace redline {

struct WordPieceOptions {
  TokenId unk = -1;                      ///< token of a word that no pieces spell
  std::string continuing_prefix = "##";  ///< prefix of the pieces inside a word
  std::string word_prefix;       ///< prefix of the pieces that begin a word: GGUF files have "▁" there, and no "##"
  int64_t max_word_chars = 100;  ///< a longer word is unknown
};

/// Divides a word into the longest pieces from the left (Devlin et al. 2018, arXiv:1810.04805; the matching is that of
/// the released code). A word that cannot be divided completely is one unknown token.
class WordPieceModel : public TokenModel {
 public:
  /// invalid_argument: a piece longer than PrefixMatcher::kMaxBytes.
  static Result<std::unique_ptr<TokenModel>> make(const Vocabulary& vocabulary, const WordPieceOptions& options);
  using TokenModel::encode;
  void encode(std::string_view word, EncodeWork& work, std::vector<TokenId>& ids) const override;
  int64_t max_token_bytes(bool) const override { return 0; }  // a word of any length may be unknown

 private:
  explicit WordPieceModel(const WordPieceOptions& options)
      : unk_(options.unk), max_word_chars_(options.max_word_chars) {}
  TokenId unk_;
  int64_t max_word_chars_;
  PrefixMatcher begins_, continues_;
};

}  // namespace redline
