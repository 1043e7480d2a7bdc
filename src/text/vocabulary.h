// The pieces of a vocabulary with fast lookup.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace redline {

/// Types of tokens, numbered as in GGUF's tokenizer.ggml.token_type and SentencePiece's ModelProto.SentencePiece.Type.
enum class TokenType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// A hash map from string to id that does not copy the strings. It uses open addressing over ids into `pieces`, each
/// with 32 bits of the hash, so that strings are compared only if they very likely match.
class PieceIndex {
 public:
  static uint64_t hash(std::string_view piece);

  void reserve(size_t pieces);
  /// Inserts `id` unless an equal piece is present (the first wins). Returns false if it was present.
  bool insert(const std::vector<std::string>& pieces, TokenId id);
  TokenId find(const std::vector<std::string>& pieces, std::string_view piece) const {  ///< -1: not found
    return find(pieces, piece, hash(piece));
  }
  TokenId find(const std::vector<std::string>& pieces, std::string_view piece, uint64_t hash) const;

  /// A lookup makes two dependent memory accesses. For a batch of pieces, call prefetch() for all, then
  /// prefetch_piece() for all, then find().
  void prefetch(uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
  }
  void prefetch_piece(const std::vector<std::string>& pieces, uint64_t hash) const {
    if (slots_.empty()) return;
    const Slot& slot = slots_[hash & (slots_.size() - 1)];
    if (slot.id >= 0) __builtin_prefetch(&pieces[static_cast<size_t>(slot.id)]);
  }

 private:
  struct Slot {
    uint32_t tag = 0;  ///< upper half of the hash
    TokenId id = -1;
  };
  void put(Slot slot, uint64_t hash);
  void grow(const std::vector<std::string>& pieces, size_t slots);
  std::vector<Slot> slots_;
  size_t size_ = 0;
};

struct Vocabulary {
  std::vector<std::string> pieces;  ///< piece of each id; "" for gaps in the file's ids
  std::vector<TokenType> types;     ///< type of each id
  PieceIndex index;                 ///< all non-empty pieces

  int64_t size() const { return static_cast<int64_t>(pieces.size()); }
  bool has(TokenId id) const { return id >= 0 && id < size(); }
  TokenId find(std::string_view piece) const { return index.find(pieces, piece); }
  bool is_special(TokenId id) const {
    return has(id) && (types[id] == TokenType::control || types[id] == TokenType::unknown);
  }
  /// Returns true for a token that plain text can become: not control, not unknown, not a byte token.
  bool is_plain(TokenId id) const { return has(id) && !is_special(id) && types[id] != TokenType::byte; }
  void build_index();
};

/// Returns the value of a byte token such as "<0x0A>"; -1 for other pieces.
int byte_of_piece(std::string_view piece);
/// Returns the token of each byte, or -1.
std::array<TokenId, 256> find_byte_tokens(const Vocabulary& vocabulary);

/// Finds the longest of many strings at a position, with a trie over bytes.
class PrefixMatcher {
 public:
  static constexpr size_t kMaxBytes =
      1024;  ///< longer strings are rejected: matching costs up to this much per byte of text

  struct Match {
    int32_t value = -1;  ///< -1: no match
    size_t bytes = 0;
  };

  /// Adds a string. The first of equal strings wins. invalid_argument: "" or longer than kMaxBytes.
  Status insert(std::string_view text, int32_t value);
  Match longest_at(std::string_view text, size_t pos) const;
  /// Returns the first position from `pos` on where a string may begin.
  size_t next_start(std::string_view text, size_t pos) const {
    // Two bytes exclude more positions than one: runs of spaces are tokens of some vocabularies, and spaces are
    // frequent.
    for (; pos + 1 < text.size(); ++pos)
      if (has_pair(static_cast<uint8_t>(text[pos]), static_cast<uint8_t>(text[pos + 1]))) return pos;
    if (pos < text.size() && !starts_[static_cast<uint8_t>(text[pos])]) ++pos;
    return pos;
  }
  /// Calls visit(match) for every string that matches at `pos`, shortest first.
  template <class Visit>
  void for_each_at(std::string_view text, size_t pos, Visit&& visit) const {
    if (!starts_[static_cast<uint8_t>(text[pos])]) return;
    int32_t node = 0;
    for (size_t i = pos; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node < 0) return;
      if (values_[static_cast<size_t>(node)] >= 0) visit(Match{values_[static_cast<size_t>(node)], i + 1 - pos});
    }
  }
  bool empty() const { return values_.size() <= 1; }

 private:
  int32_t child(int32_t node, uint8_t byte) const;
  bool has_pair(uint8_t first, uint8_t second) const {
    return !pairs_.empty() && (pairs_[size_t{first} * 4 + second / 64] >> (second % 64) & 1) != 0;
  }
  void add_child(int32_t node, uint8_t byte, int32_t to);

  struct Edge {
    uint64_t key = 0;  ///< node << 8 | byte, plus 1; 0 means free
    int32_t to = 0;
  };
  std::vector<Edge> edges_;
  size_t num_edges_ = 0;
  std::vector<int32_t> values_ = {-1};  ///< value of each node
  bool starts_[256] = {};
  /// a bit for the first two bytes of each string; for strings of one byte, with every second byte
  std::vector<uint64_t> pairs_;
};

}  // namespace redline
