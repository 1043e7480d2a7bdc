// Reads JSON of untrusted files with checks.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline {

using Json = nlohmann::json;

/// Returns the parser's message without the number in "[json.exception.parse_error.101] parse error at ...", as a view
/// of `what`, the text of its exception.
std::string_view json_reason(std::string_view what);
/// Parses JSON. invalid_argument: the message has the parser's reason and byte offset, or says that the text ends
/// early. `name` is the name of the file.
Result<Json> parse_json(std::string_view text, std::string_view name);
/// parse_json() for an object. invalid_argument: also JSON that is not an object.
Result<Json> parse_json_object(std::string_view text, std::string_view name);
/// Returns the member; nullptr if `object` is not an object, or the member is missing or null.
const Json* member(const Json& object, const char* key);
std::string string_or(const Json& object, const char* key, std::string_view otherwise);
std::optional<bool> optional_bool(const Json& object, const char* key);
std::optional<int64_t> optional_int(const Json& object, const char* key);
/// Returns the value for messages, truncated after 100 bytes. Nested arrays and objects are shown only as "a nested
/// array": dump() recurses into them, and untrusted files may nest them without limit.
std::string spell(const Json& value);

}  // namespace redline
