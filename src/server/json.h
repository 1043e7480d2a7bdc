// JSON of requests and answers: keys in insertion order, numbers and text checked.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/api_error.h"

namespace redline::server {

using Json = nlohmann::ordered_json;

/// 2^53 - 1, the largest integer that a JavaScript number holds exactly.
inline constexpr double kMaxJsonInteger = 9007199254740991.0;

/// Serializes. Invalid UTF-8 becomes U+FFFD instead of an exception.
std::string to_text(const Json& json);

/// Limits of parse_json().
struct JsonLimits {
  size_t max_values = size_t{4} << 20;
  /// Called with the bytes that the values need, before they are allocated. Returns false if there is no room. Empty:
  /// no limit.
  std::function<bool(int64_t)> take_memory = {};
  /// Called at intervals. Returns true if the result is no longer wanted. Empty: it is always wanted.
  std::function<bool()> is_abandoned = {};
};

/// Parses in time linear in the text, also with many members in one object; of two members of one name the last counts.
/// invalid_request_error: malformed JSON (with the byte), text that is not valid UTF-8, a number out of range, more
/// than 64 levels or more values than max_values. 503: take_memory or is_abandoned stopped it.
Outcome<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace redline::server
