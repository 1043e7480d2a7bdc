// The position of the next token of a sequence, which rows of embeddings with positions of their own set apart from its
// length.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "redline/prompt.h"

namespace redline {

class NextPosition {
 public:
  /// Returns the position of the token after the first `length` tokens.
  int64_t at(int64_t length) const;
  /// Notes that `tokens` were appended to a sequence of `length` tokens, at the position at(length).
  void append(int64_t length, const PromptView& tokens);
  /// Drops what is known of lengths beyond `length`.
  void truncate(int64_t length);

 private:
  struct Jump {
    int64_t length, position;  ///< from this length on, positions count from here
  };
  std::vector<Jump> jumps_;  ///< in order of length
};

}  // namespace redline
