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

/// Converts one piece of a text to token ids.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the ids of one piece, which may contain any bytes. Counts the bytes of the piece in `work`, and stops
  /// early if `work` is stopped.
  virtual void encode(std::string_view piece, EncodeWork& work, std::vector<TokenId>& ids) const = 0;
  /// encode() without bounds.
  void encode(std::string_view piece, std::vector<TokenId>& ids) const {
    EncodeWork work;
    encode(piece, work, ids);
  }
  /// Returns the maximum number of bytes of a piece that become one token; 0: there is no maximum. `spells_bytes`:
  /// pieces are spelled in the byte alphabet, and the maximum counts the bytes before spelling.
  virtual int64_t max_token_bytes(bool spells_bytes) const = 0;
};

/// Returns the number of bytes of a token's piece. `spells_bytes`: each character in the byte alphabet counts as one
/// byte.
int64_t piece_bytes(std::string_view piece, bool spells_bytes);

/// Byte-pair encoding (Sennrich, Haddow, Birch: "Neural Machine Translation of Rare Words with Subword Units", 2016)
/// over characters. For byte-level vocabularies, pieces first go through spell_bytes().
struct BpeOptions {
  bool ignore_merges = false;           ///< a piece that is a token as a whole is not merged
  bool whole_newlines = false;          ///< a piece of newlines that is a token as a whole is not merged
  bool byte_fallback = false;           ///< a character outside the vocabulary becomes its "<0x..>" tokens
  bool fuse_unk = false;                ///< adjacent unknown characters become one unk
  TokenId unk = -1;                     ///< -1: unknown characters are dropped
  std::string continuing_prefix;        ///< prefix ("##") for the lookup of all characters of a piece except the first
  std::string end_of_word;              ///< appended to the last character of a piece for its lookup ("</w>")
  bool refuses_unknown_merges = false;  ///< sides and results of merges must be tokens (tokenizers)
  bool unknown_separates = false;       ///< neighbors of unknown characters never merge (llama.cpp, not tokenizers)
};

class BpeModel : public TokenModel {
 public:
  /// `merges` in order of rank. Without refuses_unknown_merges, a merge whose sides or result are not tokens is kept,
  /// since it may lead to a token; an intermediate result that remains is emitted character by character.
  /// invalid_argument: a merge with an empty side, or whose right side lacks the prefix, or, with
  /// refuses_unknown_merges, with a side or result that is not a token; the message has its index.
  static Result<std::unique_ptr<TokenModel>> make(
      const Vocabulary& vocabulary, BpeOptions options,
      const std::vector<std::pair<std::string_view, std::string_view>>& merges);
  using TokenModel::encode;
  void encode(std::string_view piece, EncodeWork& work, std::vector<TokenId>& ids) const override;
  int64_t max_token_bytes(bool spells_bytes) const override;
  /// Symbols of a window, for tests; larger pieces are merged window by window.
  size_t window = kMergeWindow;

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
  void put(int32_t id, std::vector<TokenId>& ids) const;
  /// Appends the symbols of the bytes [begin, end) of a piece, at most `most`, with offsets relative to `begin`.
  /// Returns the offset after the last symbol.
  size_t append_symbols(std::string_view piece, size_t begin, size_t end, size_t most,
                        std::vector<MergeSymbol>& symbols) const;

  const Vocabulary& vocabulary_;
  BpeOptions options_;
  std::vector<Merge> merges_;  ///< open addressing
  // Texts in merges that are not in the vocabulary; their ids start at vocabulary_.size().
  std::vector<std::string> extra_;
  PieceIndex extra_index_;
  std::array<int32_t, 0x200> small_char_ids_;  ///< ids of the characters below U+0200, which include the byte alphabet
  std::array<TokenId, 256> byte_ids_;
};

/// SentencePiece BPE (Kudo, Richardson: "SentencePiece", 2018): repeatedly merges the adjacent pair whose joined piece
/// has the highest score. Characters that are not pieces become byte tokens, otherwise unk (one per run).
class SpmModel : public TokenModel {
 public:
  struct Options {
    TokenId unk = -1;
    bool match_user_defined = false;  ///< find user-defined pieces within the piece, longest first, like sentencepiece
    bool split_unused = false;        ///< split pieces of type unused again at the end
  };
  /// scores.size() == vocabulary.size(); NaN counts as the lowest score.
  static Result<std::unique_ptr<TokenModel>> make(const Vocabulary& vocabulary, const std::vector<float>& scores,
                                                  Options options);
  using TokenModel::encode;
  void encode(std::string_view piece, EncodeWork& work, std::vector<TokenId>& ids) const override;
  int64_t max_token_bytes(bool spells_bytes) const override;
  /// Symbols of a window, for tests; larger pieces are merged window by window.
  size_t window = kMergeWindow;

 private:
  explicit SpmModel(const Vocabulary& vocabulary) : vocabulary_(vocabulary) { byte_ids_.fill(-1); }
  /// See BpeModel::append_symbols().
  size_t append_symbols(std::string_view piece, size_t begin, size_t end, size_t most,
                        std::vector<MergeSymbol>& symbols) const;
  void put(std::string_view text, TokenId id, std::vector<TokenId>& ids) const;
  void put_unused(std::string_view text, std::vector<TokenId>& ids) const;

  const Vocabulary& vocabulary_;
  Options options_;
  PieceIndex mergeable_;         ///< pieces that plain text can become
  std::vector<uint32_t> ranks_;  ///< rank of each token by its score; equal scores have equal ranks
  size_t max_bytes_ = 0;
  PrefixMatcher user_defined_;
  std::array<TokenId, 256> byte_ids_;
};

}  // namespace redline
