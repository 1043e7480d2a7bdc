// Shared parts of the tests of output constraints: vocabularies, and masks that are made by trying every token.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "constraints/constraint.h"

namespace redline {

/// Every byte, and texts that cut characters and JSON in awkward places. The last token ends a text.
inline std::vector<std::string> small_vocabulary() {
  std::vector<std::string> texts;
  for (int b = 0; b < 256; ++b) texts.push_back(std::string(1, static_cast<char>(b)));
  for (const char* text :
       {"ab",       "abc",      "ba",           "aa",       "aaaa",   "\"a",      "a\"",      "\",\"",
        "\":",      "\":\"",    "{\"",          "}}",       "},",     "],",       "[[",       "]]",
        "[1",       "12",       "123",          "00",       "0.5",    ".5",       "-1",       "e5",
        "true",     "tru",      "alse",         "null",     "\\\"",   "\\n",      "\\u00",    "  ",
        "\n",       "\xC3",     "\xA9",         "\xC3\xA9", "a\xC3",  "\xE2\x82", "\x82\xAC", "\xE2\x82\xAC\"",
        "\xF0\x9F", "\x98\x80", "abcabcabcabc", " \"",      ": ",     ", ",       "(a",       "))",
        "((",       "+a",       "*(",           "ab\"}",    "x\":1}", "bb",       "aab",      "1,",
        ",2"})
    texts.push_back(text);
  for (const char* end : {"", "\"", "\"}", "\",\"b", "b"}) {  // longer than TokenTrie::kShortBytes
    texts.push_back(std::string(36, 'a') + end);
    texts.push_back(std::string(50, ' ') + end);
  }
  texts.push_back("</s>");
  return texts;
}
inline std::shared_ptr<const TokenTrie> small_trie() {
  static const std::shared_ptr<const TokenTrie> trie = [] {
    const std::vector<std::string> texts = small_vocabulary();
    const TokenId end = static_cast<TokenId>(texts.size()) - 1;
    return TokenTrie::make(texts, std::span(&end, 1));
  }();
  return trie;
}

using ConstraintResult = Result<std::shared_ptr<const Constraint>>;
inline ConstraintResult grammar(std::string_view text) { return Constraint::from_grammar(text, small_trie()); }
inline ConstraintResult regex(std::string_view text) { return Constraint::from_regex(text, small_trie()); }
inline ConstraintResult schema(std::string_view text, const JsonFormat& format = {.is_compact = true}) {
  return Constraint::from_json_schema(text, small_trie(), {}, format);
}

inline bool matches(const std::shared_ptr<const Constraint>& constraint, std::string_view text) {
  ConstraintState state(constraint);
  return state.accept_text(text).ok() && state.is_complete();
}

inline TokenBits mask_of(ConstraintState& state, const TokenTrie& trie) {
  TokenBits bits(trie.num_words());
  const Status status = state.fill_mask(bits);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return bits;
}

/// A random walk that takes a random allowed token each time; `visit` sees each state. Returns the text, which begins
/// with `beginning`.
template <class Random>
std::string random_walk(const std::shared_ptr<const Constraint>& constraint, Random& random, size_t max_tokens,
                        const std::function<void(ConstraintState&, const TokenBits&)>& visit = {},
                        std::string beginning = "") {
  const TokenTrie& trie = constraint->trie();
  ConstraintState state(constraint);
  std::string text = std::move(beginning);
  EXPECT_TRUE(text.empty() || state.accept_text(text).ok()) << text;
  for (size_t n = 0; n < max_tokens && !state.is_finished(); ++n) {
    const TokenBits bits = mask_of(state, trie);
    if (visit) visit(state, bits);
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < trie.vocab_size(); ++id)
      if (has_bit(bits, id)) allowed.push_back(id);
    EXPECT_FALSE(allowed.empty()) << "nothing can follow \"" << text << "\"";
    if (allowed.empty()) break;
    const TokenId id = allowed[random() % allowed.size()];
    text += trie.text(id);
    EXPECT_TRUE(state.accept(id).ok());
  }
  return text;
}

}  // namespace redline
