// Tries of the tokens of a vocabulary, over their bytes.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace redline {

/// A trie of texts with the ids of their tokens. Nodes are in depth-first order, so that traversing it needs no
/// recursion.
class ByteTrie {
 public:
  struct Node {
    uint8_t byte;
    uint16_t depth;        ///< depth of the node; the root's children have depth 1
    uint32_t end;          ///< first node after this one's subtree
    uint32_t first_token;  ///< first token that ends here; the next node's first_token is the end
  };
  ByteTrie() { nodes_.push_back({0, 0, 0, 0}); }
  /// Texts must not be empty.
  explicit ByteTrie(std::vector<std::pair<std::string_view, TokenId>> texts);

  size_t size() const { return nodes_.size() - 1; }
  const Node& node(size_t i) const { return nodes_[i]; }
  std::span<const TokenId> tokens(size_t i) const {
    return std::span(tokens_).subspan(nodes_[i].first_token, nodes_[i + 1].first_token - nodes_[i].first_token);
  }
  /// Returns all tokens at and below node i.
  std::span<const TokenId> subtree_tokens(size_t i) const {
    return std::span(tokens_).subspan(nodes_[i].first_token, nodes_[nodes_[i].end].first_token - nodes_[i].first_token);
  }
  size_t max_depth() const { return max_depth_; }

 private:
  std::vector<Node> nodes_;  ///< the last entry marks the end of the tokens
  std::vector<TokenId> tokens_;
  size_t max_depth_ = 0;
};

/// A set of tokens: token i is bit i % 32 of word i / 32.
using TokenBits = std::vector<uint32_t>;
inline void set_bit(std::span<uint32_t> bits, TokenId id) {
  bits[static_cast<size_t>(id) / 32] |= 1U << (static_cast<uint32_t>(id) % 32);
}
inline bool has_bit(std::span<const uint32_t> bits, TokenId id) {
  return (bits[static_cast<size_t>(id) / 32] >> (static_cast<uint32_t>(id) % 32)) & 1;
}

/// The texts and tries of a vocabulary, built once per tokenizer and shared. Special tokens have no text and are not in
/// a trie.
///
/// Tokens of whole characters without a control character, quote or backslash are in a separate trie. Where any such
/// character may follow, as within a JSON string, all of these tokens are allowed without examining each one.
class TokenTrie {
 public:
  /// `size`: number of logits. `end_tokens` end a text; they have no text here even if the vocabulary has one for them.
  static std::shared_ptr<const TokenTrie> make(const Tokenizer& tokenizer, int64_t size,
                                               std::span<const TokenId> end_tokens);
  /// `texts`: the text of each id; "" for special tokens.
  static std::shared_ptr<const TokenTrie> make(std::vector<std::string> texts, std::span<const TokenId> end_tokens);

  int64_t vocab_size() const { return static_cast<int64_t>(texts_.size()); }
  size_t num_words() const { return (texts_.size() + 31) / 32; }
  std::string_view text(TokenId id) const { return texts_[static_cast<size_t>(id)]; }
  std::span<const TokenId> end_tokens() const { return end_tokens_; }
  bool is_end(TokenId id) const;
  /// Returns the id of a special token with this name, or of the only token that spells the text; -1: none.
  TokenId find_name(std::string_view name) const;

  const ByteTrie& plain() const { return plain_; }
  const ByteTrie& other() const { return other_; }
  size_t max_bytes() const { return max_bytes_; }
  /// Tokens of more than kShortBytes, which are few. long_tokens() lists them, the longest first.
  static constexpr size_t kShortBytes = 32;
  std::span<const TokenId> long_tokens() const { return long_tokens_; }
  size_t max_plain_chars() const { return plain_up_to_.size() - 1; }
  /// Returns the plain tokens of at most `chars` characters; all of them if `chars` exceeds max_plain_chars().
  const TokenBits& plain_up_to(size_t chars) const { return plain_up_to_[std::min(chars, max_plain_chars())]; }

 private:
  TokenTrie() = default;
  std::vector<std::string> texts_;
  std::vector<TokenId> end_tokens_;
  ByteTrie plain_, other_;
  size_t max_bytes_ = 0;
  std::vector<TokenId> long_tokens_;
  std::vector<TokenBits> plain_up_to_;
  const Tokenizer* tokenizer_ = nullptr;
};

}  // namespace redline
