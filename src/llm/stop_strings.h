// Ends a text at a stop string without emitting any part of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline {

/// Finds stop strings in a text. Takes the text as it is generated, in pieces of any size, and returns the part that is
/// safe to emit. Text that may become a stop string is held back. The stop string that is complete first ends the text;
/// if several end at the same byte, the longest one does. The result does not depend on how the text was split.
///
/// One Knuth-Morris-Pratt automaton (1977) per stop string: each byte is processed once.
class StopStrings {
 public:
  StopStrings() = default;
  /// invalid_argument: an empty stop string, or one that is not UTF-8 and so can never match.
  static Result<StopStrings> create(std::vector<std::string> stops);

  /// Adds text and returns what may be emitted now. Pieces of whole UTF-8 characters give whole characters. After a
  /// stop string has matched, everything is dropped.
  std::string push(std::string_view text);
  /// Ends the text, if no stop string has, and returns the text still held back.
  std::string finish();
  bool found() const { return found_ >= 0; }
  /// Index of the stop string that matched; -1: none.
  int which() const { return found_; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> fallback;  // [n]: length of the longest proper prefix of text[0..n] that also ends there
    size_t matched = 0;            // number of bytes of `text` matched by the end of the input
  };
  std::vector<Stop> stops_;
  std::string held_;
  int found_ = -1;
};

}  // namespace redline
