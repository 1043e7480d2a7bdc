// Vocabulary and limits of the fuzz targets for constraints. Both are small, so that each input takes little time.
#pragma once

#include "constraints/constraint.h"
#include "fuzz_input.h"

namespace redline {

/// Returns a vocabulary of all bytes, a few tokens of several bytes, and a token for the end of the text.
inline std::shared_ptr<const TokenTrie> fuzz_trie() {
  std::vector<std::string> texts;
  for (int b = 0; b < 256; ++b) texts.push_back(std::string(1, static_cast<char>(b)));
  for (const char* text : {"ab", "\":", "\",\"", "}}", "12", "true", "\xC3\xA9", "\xA9\"", "  "}) texts.push_back(text);
  texts.push_back("</s>");
  const auto end = static_cast<TokenId>(texts.size() - 1);
  return TokenTrie::make(std::move(texts), std::span(&end, 1));
}

/// Returns limits far below the defaults.
inline ConstraintLimits fuzz_limits() {
  ConstraintLimits limits;
  limits.compile_ms = 500;
  limits.max_states = 50'000;
  limits.cache_bytes = 8 << 20;
  limits.max_parse_states = 1000;
  return limits;
}

}  // namespace redline
