// Finds the pieces of a text as the patterns of the common byte-level tokenizers do, without a regular expression:
// ASCII by tables. With any other character the caller runs the regular expression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace redline {

class PieceScanner {
 public:
  /// The patterns of GPT-2, Llama 3, Qwen 2 and GPT-4o, spelled as in their files.
  static std::optional<PieceScanner> of(std::string_view pattern);

  /// The length of the match at `at`, of a text that ends at `end`; 0: a character outside of ASCII takes part.
  /// Requires at < end.
  size_t match(const char* at, const char* end) const;

 private:
  enum class Kind : uint8_t { gpt2, llama3, gpt4o };
  explicit PieceScanner(Kind kind, int digits) : kind_(kind), digits_(digits) {}
  Kind kind_;
  int digits_;  ///< most digits of a piece
};

}  // namespace redline
