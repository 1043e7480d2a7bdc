#include "text/json_reader.h"

#include <algorithm>

#include "base/json_text.h"

namespace redline {

std::string_view json_reason(std::string_view reason) {
  if (const size_t at = reason.find("] "); reason.starts_with("[json.exception.") && at != std::string_view::npos)
    reason.remove_prefix(at + 2);
  return reason;
}

Result<Json> parse_json(std::string_view text, std::string_view name) {
  REDLINE_TRY(check_json_bounds(text, name));
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& e) {
    if (e.byte > text.size()) return invalid_argument("{}: incomplete: the JSON ends at byte {}", name, text.size());
    std::string_view reason = json_reason(e.what());  // "parse error at line 1, column 2: ..."
    if (const size_t at = reason.find(": "); at != std::string::npos) reason.remove_prefix(at + 2);
    return invalid_argument("{}: not JSON at byte {}: {}", name, e.byte, reason);
  } catch (const Json::exception& e) {
    return invalid_argument("{}: {}", name, json_reason(e.what()));
  }
}

Result<Json> parse_json_object(std::string_view text, std::string_view name) {
  REDLINE_ASSIGN(Json json, parse_json(text, name));
  if (!json.is_object()) return invalid_argument("{}: not a JSON object", name);
  return json;
}

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string string_or(const Json& object, const char* key, std::string_view otherwise) {
  const Json* value = member(object, key);
  return value && value->is_string() ? value->get_ref<const std::string&>() : std::string(otherwise);
}

std::optional<bool> optional_bool(const Json& object, const char* key) {
  const Json* value = member(object, key);
  return value && value->is_boolean() ? std::optional<bool>(value->get<bool>()) : std::nullopt;
}

std::optional<int64_t> optional_int(const Json& object, const char* key) {
  const Json* value = member(object, key);
  if (!value || !value->is_number_integer()) return std::nullopt;
  if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return value->get<int64_t>();
}

std::string spell(const Json& value) {
  constexpr size_t kLongest = 100;
  if (value.is_structured() && std::any_of(value.begin(), value.end(), [](const Json& v) { return v.is_structured(); }))
    return value.is_array() ? "a nested array" : "a nested object";
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, kLongest);
}

}  // namespace redline
