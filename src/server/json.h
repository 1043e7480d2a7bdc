// JSON of requests and answers: keys in insertion order, numbers and text checked.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/api_error.h"

namespace redline::server {

using Json = nlohmann::ordered_json;

/// 2^53 - 1: what a number of JavaScript can hold exactly.
inline constexpr double kMaxJsonInteger = 9007199254740991.0;

/// Invalid UTF-8 becomes U+FFFD instead of an exception.
std::string to_text(const Json& json);

/// Limits of reading a text.
struct JsonLimits {
  size_t max_values = size_t{4} << 20;
  /// Asked for so many bytes before the values are made; false: there is no room. Empty: there is.
  std::function<bool(int64_t)> take_memory = {};
  /// Asked now and then; true: the result is not wanted any more. Empty: it is.
  std::function<bool()> is_abandoned = {};
};

/// The time is linear in the text, also with many members in one object; of two members of one name the last counts.
/// invalid_request_error: malformed JSON (with the byte), text that is not valid UTF-8, a number out of range, more
/// than 64 levels or more values than max_values. 503: there is no room, or it is abandoned.
Outcome<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace redline::server
