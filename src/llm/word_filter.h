// Finds strings in a text that grows token by token.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constraints/token_trie.h"

namespace redline {

/// Finds where strings end in a text.
class WordMatcher {
 public:
  WordMatcher() = default;
  /// Strings must not be empty.
  explicit WordMatcher(std::vector<std::string> words);
  const std::vector<std::string>& words() const { return words_; }
  /// Appends to the text. Returns true if one of the strings ends within `bytes`.
  bool accept(std::string_view bytes);
  /// Returns the end of the text that may be the beginning of a string.
  std::string_view tail() const { return tail_; }
  /// Returns to the text that ended with `tail`, a former tail().
  void roll_back(std::string tail) { tail_ = std::move(tail); }

 private:
  std::vector<std::string> words_;
  size_t max_bytes_ = 0;
  std::string tail_;
};

/// Excludes the tokens that would complete a forbidden string.
class WordFilter {
 public:
  WordFilter(std::vector<std::string> words, std::shared_ptr<const TokenTrie> vocabulary);
  void accept(TokenId token);
  /// As those of WordMatcher.
  std::string_view tail() const { return matcher_.tail(); }
  void roll_back(std::string tail) { matcher_.roll_back(std::move(tail)); }
  void for_each_excluded(const std::function<void(TokenId)>& exclude) const;

 private:
  std::shared_ptr<const TokenTrie> vocabulary_;
  WordMatcher matcher_;
  std::vector<TokenId> contain_word_;  ///< tokens that contain a whole string
};

}  // namespace redline
