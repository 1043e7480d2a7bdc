// Splits ASCII text into the same pieces as the patterns of the common byte-level tokenizers, by tables instead of a
// regular expression. For any other character the caller runs the regular expression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace redline {

class PieceScanner {
 public:
  /// Returns the scanner of a pattern: those of GPT-2, Llama 3, Qwen 2 and GPT-4o, spelled as in their files.
  static std::optional<PieceScanner> of(std::string_view pattern);

  /// Returns the length of the match at `at` in a text that ends at `end`; 0 if a character outside of ASCII affects
  /// it. Requires at < end.
  size_t match(const char* at, const char* end) const;

 private:
  enum class Kind : uint8_t { gpt2, llama3, gpt4o };
  explicit PieceScanner(Kind kind, int digits) : kind_(kind), digits_(digits) {}
  Kind kind_;
  int digits_;  ///< maximum digits of a piece
};

}  // namespace redline
