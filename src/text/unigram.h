// The unigram language model of SentencePiece: T5's vocabulary.
#pragma once

#include <array>

#include "text/bpe.h"

namespace redline {

struct UnigramOptions {
  TokenId unk = -1;            ///< -1: unknown characters are left out
  bool byte_fallback = false;  ///< an unknown run becomes its "<0x..>" tokens where the vocabulary has them all
  double min_score = 0;        ///< the lowest score of a piece; an unknown character costs ten more
  bool float_sums = false;     ///< scores add up in float32 (sentencepiece), else in float64 (tokenizers)
};

/// The segmentation of highest score, a sum over pieces (Kudo 2018, arXiv:1804.10959, section 3.2), by Viterbi's
/// algorithm. Of equal ones the first found from left to right, shorter pieces first. Neighbouring unknown characters
/// are one token.
class UnigramModel : public TokenModel {
 public:
  /// `scores` by id; tokens without one, special ones and those of type unused are not found in text. invalid_argument:
  /// a piece that is too long (PrefixMatcher::kMaxBytes).
  static Result<std::unique_ptr<TokenModel>> make(const Vocabulary& vocabulary, std::vector<double> scores,
                                                  UnigramOptions options);
  void encode(std::string_view piece, std::vector<TokenId>& ids) const override;

 private:
  UnigramModel(const Vocabulary& vocabulary, std::vector<double> scores, UnigramOptions options);
  void encode_chunk(std::string_view text, std::vector<TokenId>& ids) const;
  void put_unknown(std::string_view text, std::vector<TokenId>& ids) const;

  const Vocabulary& vocabulary_;
  std::vector<double> scores_;
  UnigramOptions options_;
  PrefixMatcher pieces_;
  std::array<TokenId, 256> byte_ids_;
};

}  // namespace redline
