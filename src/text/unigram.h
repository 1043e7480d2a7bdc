// SentencePiece's unigram language model, used by T5.
#pragma once

#include <array>

#include "text/bpe.h"

namespace redline {

struct UnigramOptions {
  TokenId unk = -1;            ///< -1: unknown characters are dropped
  bool byte_fallback = false;  ///< an unknown run becomes its "<0x..>" tokens if the vocabulary has them all
  double min_score = 0;        ///< lowest score of a piece; an unknown character has a score lower by ten
  bool float_sums = false;     ///< accumulate scores in float32 (sentencepiece); false: in float64 (tokenizers)
};

/// Finds the segmentation with the highest sum of scores (Kudo 2018, arXiv:1804.10959, section 3.2) with the Viterbi
/// algorithm. Ties are resolved in favour of the first one found from left to right, shorter pieces first. Adjacent
/// unknown characters become one token.
class UnigramModel : public TokenModel {
 public:
  /// `scores` has one score per id. Tokens without a score, special tokens and tokens of type unused are not matched in
  /// text. invalid_argument: a piece longer than PrefixMatcher::kMaxBytes.
  static Result<std::unique_ptr<TokenModel>> make(const Vocabulary& vocabulary, std::vector<double> scores,
                                                  UnigramOptions options);
  using TokenModel::encode;
  void encode(std::string_view piece, EncodeWork& work, std::vector<TokenId>& ids) const override;
  int64_t max_token_bytes(bool spells_bytes) const override;

 private:
  UnigramModel(const Vocabulary& vocabulary, std::vector<double> scores, UnigramOptions options);
  TokenId token_of(std::string_view text) const;
  void put_unknown(std::string_view text, std::vector<TokenId>& ids) const;

  std::vector<double> scores_;
  UnigramOptions options_;
  PrefixMatcher pieces_;
  size_t max_bytes_ = 1;  ///< maximum bytes of a piece
  std::array<TokenId, 256> byte_ids_;
};

}  // namespace redline
