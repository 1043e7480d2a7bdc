// Strings in a text that comes token by token.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
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
  /// Appends to the text. True: one of the strings ends within `bytes`.
  bool accept(std::string_view bytes);
  /// The end of the text, as much as may be the beginning of a string.
  std::string_view tail() const { return tail_; }

 private:
  std::vector<std::string> words_;
  size_t max_bytes_ = 0;
  std::string tail_;
};

/// The tokens that would complete a string that must not appear.
class WordFilter {
 public:
  WordFilter(std::vector<std::string> words, std::shared_ptr<const TokenTrie> vocabulary);
  void accept(TokenId token);
  void for_each_excluded(const std::function<void(TokenId)>& exclude) const;

 private:
  std::shared_ptr<const TokenTrie> vocabulary_;
  WordMatcher matcher_;
  std::vector<TokenId> contain_word_;  ///< tokens that contain a whole string
};

}  // namespace redline
