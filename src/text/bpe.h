// Token models: byte-pair encoding by merge list, and SentencePiece BPE by score.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/merge.h"
#include "text/vocabulary.h"

namespace redline {

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the ids of one piece, which may contain any bytes.
  virtual void encode(std::string_view piece, std::vector<TokenId>& ids) const = 0;
};

/// Byte-pair encoding (Sennrich, Haddow, Birch: "Neural Machine Translation of Rare Words with Subword Units", 2016)
/// over characters. For byte-level vocabularies, pieces first go through spell_bytes().
struct BpeOptions {
  bool ignore_merges = false;           ///< a piece that is a token as a whole is not merged
  bool whole_newlines = false;          ///< the same, for pieces of newlines only
  bool byte_fallback = false;           ///< a character outside the vocabulary becomes its "<0x..>" tokens
  bool fuse_unk = false;                ///< adjacent unknown characters become one unk
  TokenId unk = -1;                     ///< -1: unknown characters are dropped
  std::string continuing_prefix;        ///< before all characters of a piece but the first, for their lookup ("##")
  std::string end_of_word;              ///< appended to the last character of a piece for its lookup ("</w>")
  bool refuses_unknown_merges = false;  ///< sides and results of merges must be tokens (tokenizers)
  bool unknown_separates = false;       ///< neighbors of unknown characters never merge (llama.cpp, not tokenizers)
};

class BpeModel : public TokenModel {
 public:
  /// `merges` in order of rank. Without refuses_unknown_merges, a merge whose sides or result are not tokens is kept,
  /// since it may lead to a token; an intermediate result that remains is emitted character by character.
  /// invalid_argument: a merge with an empty side, whose right side lacks the prefix, or, with refuses_unknown_merges,
  /// with a side or result that is no token; the message states its index.
  static Result<std::unique_ptr<TokenModel>> make(
      const Vocabulary& vocabulary, BpeOptions options,
      const std::vector<std::pair<std::string_view, std::string_view>>& merges);
  void encode(std::string_view piece, std::vector<TokenId>& ids) const override;

 private:
  struct Merge {
    uint64_t pair = ~0ull;  ///< left id << 32 | right id
    uint32_t rank = 0;
    int32_t id = -1;
  };
  BpeModel(const Vocabulary& vocabulary, BpeOptions options);
  int32_t intern(std::string_view text, uint64_t hash);
  bool add_merge(int32_t left, int32_t right, uint32_t rank, int32_t id);
  const Merge* find_merge(int32_t left, int32_t right) const;
  int32_t char_id(std::string_view character) const;
  void encode_chunk(std::string_view piece, std::vector<TokenId>& ids) const;
  void append_symbols(std::string_view piece, std::vector<MergeSymbol>& symbols) const;

  const Vocabulary& vocabulary_;
  BpeOptions options_;
  std::vector<Merge> merges_;  ///< open addressing
  // Texts in merges that are not in the vocabulary; their ids start at vocabulary_.size().
  std::vector<std::string> extra_;
  PieceIndex extra_index_;
  std::array<int32_t, 0x200> small_char_ids_;  ///< by code point: the byte alphabet lies below U+0200
  std::array<TokenId, 256> byte_ids_;
};

/// SentencePiece BPE (Kudo, Richardson: "SentencePiece", 2018): repeatedly merges the adjacent pair whose joined piece
/// has the highest score. Characters that are not pieces become byte tokens, otherwise unk (one per run).
class SpmModel : public TokenModel {
 public:
  struct Options {
    TokenId unk = -1;
    bool match_user_defined =
        false;                  ///< find user-defined pieces within the piece, longest first, as sentencepiece does
    bool split_unused = false;  ///< split pieces of type unused again at the end
  };
  /// scores.size() == vocabulary.size(); NaN counts as the lowest score.
  static Result<std::unique_ptr<TokenModel>> make(const Vocabulary& vocabulary, const std::vector<float>& scores,
                                                  Options options);
  void encode(std::string_view piece, std::vector<TokenId>& ids) const override;

 private:
  explicit SpmModel(const Vocabulary& vocabulary) : vocabulary_(vocabulary) { byte_ids_.fill(-1); }
  void encode_chunk(std::string_view piece, std::vector<TokenId>& ids) const;
  void put(std::string_view text, TokenId id, std::vector<TokenId>& ids) const;
  void put_unused(std::string_view text, std::vector<TokenId>& ids) const;

  const Vocabulary& vocabulary_;
  Options options_;
  PieceIndex mergeable_;         ///< pieces that plain text can become
  std::vector<uint32_t> ranks_;  ///< by id; equal scores have equal ranks
  size_t max_bytes_ = 0;
  PrefixMatcher user_defined_;
  std::array<TokenId, 256> byte_ids_;
};

}  // namespace redline
