// Bounds of JSON that others have written: files, answers of servers, requests.
//
// The parser (nlohmann-json) does not recurse and has no limits. What reads its result recurses, copies and prints it,
// and a value takes up to 100 bytes where its text has 3. So every text is checked before it is parsed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/error.h"

namespace redline {

/// Far above what configs, tokenizers, schemas and requests have.
inline constexpr int kMaxJsonDepth = 64;
/// The largest tokenizers have 2 million: ids, and pairs of strings for merges.
inline constexpr int64_t kMaxJsonValues = int64_t{8} << 20;

struct JsonBounds {
  int depth = kMaxJsonDepth;
  int64_t values = kMaxJsonValues;
};

/// One pass over the text, without memory. A text that is not JSON is the parser's error: it finds the first wrong
/// byte, and up to there the nesting is right. invalid_argument: arrays and objects that nest too deep, too many
/// values, or a zero byte, which the parser takes for the end of the text; with `name`, byte and line.
Status check_json_bounds(std::string_view text, std::string_view name, const JsonBounds& bounds = {});

/// `Json` is a class of nlohmann-json. A discarded value: not JSON, or out of bounds. For texts whose form is another
/// program's, such as lines of its output; parse_json (text/json_reader.h) says what is wrong.
template <class Json>
Json parse_json_or_discard(std::string_view text) {
  if (!check_json_bounds(text, "").ok()) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}
/// The same in linear time, where nlohmann's own parser compares each name with all members before it.
template <>
nlohmann::ordered_json parse_json_or_discard<nlohmann::ordered_json>(std::string_view text);

}  // namespace redline
