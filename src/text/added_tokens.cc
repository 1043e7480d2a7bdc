#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace redline {
namespace {

/// Returns true for word characters as Rust's regex crate defines them, which include the two joiners.
bool joins_words(uint32_t c) { return is_word(c) || c == 0x200C || c == 0x200D; }

/// Returns the character whose last byte is just before `end`; none if those bytes are not well-formed UTF-8.
Utf8Char char_before(std::string_view text, size_t end) {
  for (size_t bytes = 1; bytes <= 4 && bytes <= end; ++bytes) {
    const Utf8Char c = utf8_at(text, end - bytes);
    if (c.valid && c.bytes == bytes) return c;
  }
  return {};
}

}  // namespace

Status AddedTokenFinder::add(AddedToken token) {
  const auto index = static_cast<int32_t>(tokens_.size());
  REDLINE_TRY(all_.insert(token.content, index).within(fmt::format("added token {}", token.id)));
  if (!token.special) REDLINE_TRY(plain_.insert(token.content, index));
  tokens_.push_back(std::move(token));
  return {};
}

bool AddedTokenFinder::strips() const {
  return std::any_of(tokens_.begin(), tokens_.end(), [](const AddedToken& t) { return t.lstrip || t.rstrip; });
}

void AddedTokenFinder::for_each_part(std::string_view text, bool parse_special, EncodeWork& work,
                                     const std::function<bool(MarkedText)>& visit) const {
  const PrefixMatcher& matcher = parse_special ? all_ : plain_;
  size_t done = 0;
  if (!matcher.empty()) {
    for (size_t pos = 0; pos < text.size();) {
      const size_t from = pos;
      pos = matcher.next_start(text.substr(0, from + EncodeWork::kSliceBytes), from);
      if (!work.add(pos - from)) return;
      if (pos == from + EncodeWork::kSliceBytes || pos == text.size()) continue;
      const PrefixMatcher::Match match = matcher.longest_at(text, pos);
      if (match.value < 0) {
        ++pos;
        continue;
      }
      const AddedToken& token = tokens_[match.value];
      size_t begin = pos, end = pos + match.bytes;
      pos = end;
      if (!work.add(match.bytes)) return;
      if (token.single_word) {
        const Utf8Char before = begin > 0 ? char_before(text, begin) : Utf8Char{};
        const Utf8Char after = end < text.size() ? utf8_at(text, end) : Utf8Char{};
        if ((before.valid && joins_words(before.value)) || (after.valid && joins_words(after.value))) continue;
      }
      while (token.lstrip && begin > done) {
        const Utf8Char c = char_before(text, begin);
        if (!c.valid || !is_white_space(c.value)) break;
        begin -= c.bytes;
      }
      while (token.rstrip && end < text.size()) {
        const Utf8Char c = utf8_at(text, end);
        if (!c.valid || !is_white_space(c.value)) break;
        end += c.bytes;
      }
      begin = std::max(begin, done);
      if (begin > done && !visit({-1, text.substr(done, begin - done)})) return;
      if (!visit({token.id, text.substr(begin, end - begin)})) return;
      done = pos = end;
    }
  }
  if (done < text.size()) visit({-1, text.substr(done)});
}

}  // namespace redline
