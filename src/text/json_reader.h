// Checked access to JSON of untrusted files.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline {

using Json = nlohmann::json;

/// What the parser says, without the number in "[json.exception.parse_error.101] parse error at ...": a view of `what`,
/// the text of its exception.
std::string_view json_reason(std::string_view what);
/// invalid_argument with the parser's reason and byte offset, or that the text ends early. `name` is the name of the
/// file.
Result<Json> parse_json(std::string_view text, std::string_view name);
/// As parse_json. invalid_argument: it is JSON, but no object.
Result<Json> parse_json_object(std::string_view text, std::string_view name);
/// The member; nullptr when `object` is not an object, or the member is missing or null.
const Json* member(const Json& object, const char* key);
std::string string_or(const Json& object, const char* key, std::string_view otherwise);
std::optional<bool> optional_bool(const Json& object, const char* key);
std::optional<int64_t> optional_int(const Json& object, const char* key);
/// The value for messages, truncated after 100 bytes. Nested lists are shown by kind only: dump() recurses as deep as
/// they nest, which untrusted files do not bound.
std::string spell(const Json& value);

}  // namespace redline
