// The tokenizer of RWKV's World models: the longest token at each position, over bytes.
#pragma once

#include "text/bpe.h"
#include "text/hf_config.h"
#include "text/pipeline_tokenizer.h"

namespace redline {

/// Greedy longest match in a trie of all plain tokens (Peng et al. 2024, arXiv:2404.05892, section 5). A byte that
/// begins no token becomes `unk`, or nothing if that is -1.
class LongestMatchModel : public TokenModel {
 public:
  /// invalid_argument: a token longer than PrefixMatcher::kMaxBytes.
  static Result<std::unique_ptr<TokenModel>> make(const Vocabulary& vocabulary, TokenId unk);
  using TokenModel::encode;
  void encode(std::string_view piece, EncodeWork& work, std::vector<TokenId>& ids) const override;
  int64_t max_token_bytes(bool spells_bytes) const override;

 private:
  explicit LongestMatchModel(TokenId unk) : unk_(unk) {}
  TokenId unk_;
  PrefixMatcher tokens_;
  size_t max_bytes_ = 1;    ///< maximum bytes of a token
  bool has_bytes_ = false;  ///< every byte is a token
};

/// Sets model and kind of a tokenizer whose vocabulary has the bytes of its tokens.
Status fill_rwkv(TokenizerParts& parts, TokenId unk);

/// Converts a Python string or bytes literal ('a\n', b'\xff') to bytes; strings become UTF-8. invalid_argument: not
/// such a literal.
Result<std::string> parse_python_literal(std::string_view text);
/// Converts a token of GGUF's "rwkv" vocabulary, the inside of a Python bytes literal, to bytes.
std::string unescape_rwkv_token(std::string_view text);

/// Makes the tokenizer of rwkv_vocab_v20230424.txt, which has a line for each token with its id, a literal, and its
/// length in bytes. Id 0 ends texts. invalid_argument: a line of another form, or whose length is not that of the
/// literal; the message has its number.
Result<std::unique_ptr<Tokenizer>> tokenizer_from_rwkv_vocab(std::string_view text, const HfConfig& config);

}  // namespace redline
