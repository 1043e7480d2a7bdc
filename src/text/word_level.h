// The token model with a token for every whole word.
#pragma once

#include "text/bpe.h"

namespace redline {

/// tokenizers' WordLevel: a piece that is a word of the vocabulary becomes its token, every other piece is unknown.
class WordLevelModel : public TokenModel {
 public:
  /// `is_word`: for each token, false if it was added to the model's vocabulary.
  WordLevelModel(const Vocabulary& vocabulary, std::vector<bool> is_word, TokenId unk)
      : vocabulary_(vocabulary), is_word_(std::move(is_word)), unk_(unk) {}
  using TokenModel::encode;
  void encode(std::string_view word, EncodeWork& work, std::vector<TokenId>& ids) const override {
    if (!work.add(word.size())) return;
    const TokenId id = vocabulary_.find(word);
    ids.push_back(id >= 0 && is_word_[static_cast<size_t>(id)] ? id : unk_);
  }
  int64_t max_token_bytes(bool) const override { return 0; }  // a word of any length may be unknown

 private:
  const Vocabulary& vocabulary_;
  std::vector<bool> is_word_;
  TokenId unk_;
};

}  // namespace redline
