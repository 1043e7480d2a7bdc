// Ends a text where a stop string appears, without ever showing a part of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline {

/// Text goes in as it is generated, in any pieces; text that is safe to show comes out. What may yet become a stop
/// string is held back. The first stop string to be complete ends the text; of several that end at the same byte, the
/// longest. So the result depends on the text alone and not on how it was cut into pieces.
///
/// One state of Knuth, Morris and Pratt 1977 per stop string: each byte is looked at once.
class StopStrings {
 public:
  StopStrings() = default;
  /// invalid_argument: an empty stop string, or one that is not UTF-8 and so could never appear.
  static Result<StopStrings> create(std::vector<std::string> stops);

  /// Adds text and returns what may be shown now. Pieces of whole UTF-8 characters give whole characters.
  /// After a stop string was found, everything is dropped.
  std::string push(std::string_view text);
  /// The text ended by other means: returns what was still held back.
  std::string finish();
  bool found() const { return found_ >= 0; }
  /// Index of the stop string that was found; -1 for none.
  int which() const { return found_; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> fallback;  // [n]: length of the longest proper prefix of text[0..n] that also ends there
    size_t matched = 0;            // bytes of `text` that the input now ends with
  };
  std::vector<Stop> stops_;
  std::string held_;
  int found_ = -1;
};

}  // namespace redline
