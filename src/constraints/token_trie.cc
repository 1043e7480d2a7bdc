#include "constraints/token_trie.h"

#include <algorithm>

#include "text/unicode.h"

namespace redline {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, TokenId>> texts) {
  if (!std::is_sorted(texts.begin(), texts.end())) std::sort(texts.begin(), texts.end());
  std::vector<uint32_t> path;  // nodes on the path of the previous text
  std::string_view previous;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
  };
  for (const auto& [text, id] : texts) {
    size_t common = 0;
    while (common < previous.size() && common < text.size() && previous[common] == text[common]) ++common;
    close(common);
    for (size_t i = common; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {static_cast<uint8_t>(text[i]), static_cast<uint16_t>(i + 1), 0, static_cast<uint32_t>(tokens_.size())});
    }
    max_depth_ = std::max(max_depth_, text.size());
    tokens_.push_back(id);
    previous = text;
  }
  close(0);
  nodes_.push_back({0, 0, 0, static_cast<uint32_t>(tokens_.size())});
}

namespace {

// Returns the number of characters of a plain text (TokenTrie), or 0 if the text is not plain.
size_t plain_chars(std::string_view text) {
  size_t chars = 0;
  for (size_t pos = 0; pos < text.size(); ++chars) {
    const Utf8Char c = utf8_at(text, pos);
    if (!c.valid || c.value < 0x20 || c.value == 0x7F || c.value == '"' || c.value == '\\') return 0;
    pos += c.bytes;
  }
  return chars;
}

}  // namespace

std::shared_ptr<const TokenTrie> TokenTrie::make(const Tokenizer& tokenizer, int64_t size,
                                                 std::span<const TokenId> end_tokens) {
  std::vector<std::string> texts(static_cast<size_t>(size));
  for (TokenId id = 0; id < size && id < tokenizer.vocab_size(); ++id)
    if (!tokenizer.is_special(id)) texts[static_cast<size_t>(id)] = tokenizer.token_bytes(id);
  auto trie = std::const_pointer_cast<TokenTrie>(make(std::move(texts), end_tokens));
  trie->tokenizer_ = &tokenizer;
  return trie;
}

std::shared_ptr<const TokenTrie> TokenTrie::make(std::vector<std::string> texts, std::span<const TokenId> end_tokens) {
  std::shared_ptr<TokenTrie> trie(new TokenTrie);
  for (const TokenId id : end_tokens)
    if (id >= 0 && static_cast<size_t>(id) < texts.size()) trie->end_tokens_.push_back(id);
  std::sort(trie->end_tokens_.begin(), trie->end_tokens_.end());
  std::vector<std::pair<std::string_view, TokenId>> plain, other;
  std::vector<std::vector<TokenId>> by_chars(1);
  constexpr size_t kMaxDepth = UINT16_MAX;
  for (TokenId id = 0; id < static_cast<TokenId>(texts.size()); ++id) {
    std::string& text = texts[static_cast<size_t>(id)];
    if (trie->is_end(id) || text.size() > kMaxDepth) text.clear();
    if (text.empty()) continue;
    trie->max_bytes_ = std::max(trie->max_bytes_, text.size());
    if (text.size() > kShortBytes) trie->long_tokens_.push_back(id);
    const size_t chars = plain_chars(text);
    if (chars == 0) {
      other.emplace_back(text, id);
      continue;
    }
    plain.emplace_back(text, id);
    if (by_chars.size() <= chars) by_chars.resize(chars + 1);
    by_chars[chars].push_back(id);
  }
  trie->texts_ = std::move(texts);
  std::stable_sort(trie->long_tokens_.begin(), trie->long_tokens_.end(),
                   [&](TokenId a, TokenId b) { return trie->text(a).size() > trie->text(b).size(); });
  trie->plain_ = ByteTrie(std::move(plain));
  trie->other_ = ByteTrie(std::move(other));
  TokenBits bits(trie->num_words());
  for (const std::vector<TokenId>& ids : by_chars) {
    for (const TokenId id : ids) set_bit(bits, id);
    trie->plain_up_to_.push_back(bits);
  }
  return trie;
}

bool TokenTrie::is_end(TokenId id) const { return std::binary_search(end_tokens_.begin(), end_tokens_.end(), id); }

TokenId TokenTrie::find_name(std::string_view name) const {
  if (tokenizer_) {
    const std::vector<TokenId> ids = tokenizer_->encode(name, {.add_special = false, .parse_special = true});
    return ids.size() == 1 ? ids[0] : -1;
  }
  const auto found = std::find(texts_.begin(), texts_.end(), name);
  return found == texts_.end() ? -1 : static_cast<TokenId>(found - texts_.begin());
}

}  // namespace redline
