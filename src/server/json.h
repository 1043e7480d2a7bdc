// JSON of requests and answers: keys in insertion order, numbers and text checked.
#pragma once

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

/// invalid_request_error: malformed JSON (with the byte), text that is not valid UTF-8, a number out of range, or more
/// than 64 levels.
Outcome<Json> parse_json(std::string_view text);

}  // namespace redline::server
