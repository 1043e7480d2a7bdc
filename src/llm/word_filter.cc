#include "llm/word_filter.h"

#include <algorithm>

namespace redline {
namespace {

/// Calls `found` for the tokens whose text begins with `beginning`, which is not empty.
void for_each_beginning_with(const ByteTrie& trie, std::string_view beginning,
                             const std::function<void(TokenId)>& found) {
  size_t node = 0, end = trie.size();
  for (size_t depth = 0; depth < beginning.size(); ++depth) {
    while (node < end && trie.node(node).byte != static_cast<uint8_t>(beginning[depth])) node = trie.node(node).end;
    if (node >= end) return;
    if (depth + 1 == beginning.size()) break;
    end = trie.node(node).end;
    ++node;
  }
  for (const TokenId id : trie.subtree_tokens(node)) found(id);
}

/// Returns true if the text begins with one of the words.
bool begins_with_word(const ByteTrie& words, std::string_view text) {
  size_t node = 0, end = words.size();
  for (const char c : text) {
    while (node < end && words.node(node).byte != static_cast<uint8_t>(c)) node = words.node(node).end;
    if (node >= end) return false;
    if (!words.tokens(node).empty()) return true;
    end = words.node(node).end;
    ++node;
  }
  return false;
}

}  // namespace

WordMatcher::WordMatcher(std::vector<std::string> words) : words_(std::move(words)) {
  for (const std::string& word : words_) max_bytes_ = std::max(max_bytes_, word.size());
}

bool WordMatcher::accept(std::string_view bytes) {
  const size_t before = tail_.size();
  tail_ += bytes;
  const bool ends = std::any_of(words_.begin(), words_.end(), [&](const std::string& word) {
    // An occurrence that ends after `before`.
    const size_t from = before + 1 > word.size() ? before + 1 - word.size() : 0;
    return tail_.find(word, from) != std::string::npos;
  });
  if (max_bytes_ > 0 && tail_.size() >= max_bytes_) tail_.erase(0, tail_.size() - (max_bytes_ - 1));
  return ends;
}

WordFilter::WordFilter(std::vector<std::string> words, std::shared_ptr<const TokenTrie> vocabulary)
    : vocabulary_(std::move(vocabulary)), matcher_(std::move(words)) {
  std::vector<std::pair<std::string_view, TokenId>> texts;
  for (const std::string& word : matcher_.words()) texts.emplace_back(word, 0);
  const ByteTrie trie(std::move(texts));
  for (TokenId id = 0; id < vocabulary_->vocab_size(); ++id) {
    const std::string_view text = vocabulary_->text(id);
    for (size_t begin = 0; begin < text.size(); ++begin)
      if (begins_with_word(trie, text.substr(begin))) {
        contain_word_.push_back(id);
        break;
      }
  }
}

void WordFilter::accept(TokenId token) { matcher_.accept(vocabulary_->text(token)); }

void WordFilter::for_each_excluded(const std::function<void(TokenId)>& exclude) const {
  for (const TokenId id : contain_word_) exclude(id);
  for (const std::string& word : matcher_.words())
    for (size_t begun = std::min(word.size() - 1, matcher_.tail().size()); begun > 0; --begun) {
      if (!matcher_.tail().ends_with(std::string_view(word).substr(0, begun))) continue;
      const std::string_view rest = std::string_view(word).substr(begun);
      for_each_beginning_with(vocabulary_->plain(), rest, exclude);
      for_each_beginning_with(vocabulary_->other(), rest, exclude);
    }
}

}  // namespace redline
