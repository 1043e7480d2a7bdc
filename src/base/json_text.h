// Limits for JSON texts from outside: files, answers of servers, requests.
//
// The parser (nlohmann-json) does not recurse and has no limits. Code that reads, copies or prints its result does
// recurse, and a value takes up to 100 bytes where its text has 3. So every text is checked before it is parsed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/error.h"

namespace redline {

/// Maximum nesting depth, far above that of configs, tokenizers, schemas and requests.
inline constexpr int kMaxJsonDepth = 64;
/// Maximum number of values. The largest tokenizers have 2 million: ids, and pairs of strings for merges.
inline constexpr int64_t kMaxJsonValues = int64_t{8} << 20;

struct JsonBounds {
  int depth = kMaxJsonDepth;
  int64_t values = kMaxJsonValues;
};

/// Checks nesting depth and number of values in one pass over the text, without allocating. A text that is not JSON is
/// not an error here: the parser reports its first wrong byte, and up to there the depth is right. invalid_argument:
/// too deep nesting, too many values, or a zero byte, which the parser would take for the end of the text. The message
/// has byte and line if `name` is given.
Status check_json_bounds(std::string_view text, std::string_view name, const JsonBounds& bounds = {});

/// Parses a text. Returns a discarded value if it is not JSON or exceeds the limits. `Json` is a class of
/// nlohmann-json. For texts of other programs, such as lines of their output; parse_json (text/json_reader.h) reports
/// errors.
template <class Json>
Json parse_json_or_discard(std::string_view text) {
  if (!check_json_bounds(text, "").ok()) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}
/// Parses a text and keeps the order of its members, in linear time. nlohmann's own builder compares each name with all
/// members before it.
template <>
nlohmann::ordered_json parse_json_or_discard<nlohmann::ordered_json>(std::string_view text);

}  // namespace redline
