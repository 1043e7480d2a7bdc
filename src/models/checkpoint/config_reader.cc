#include "models/checkpoint/config_reader.h"

#include <cmath>

namespace redline {
namespace {

std::string shown(const nlohmann::json& value) {
  if (value.is_structured())
    return value.is_array() ? "an array" : "an object";  // dump() recurses with the nesting depth
  constexpr size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

nlohmann::json with_common_names(nlohmann::json config, std::span<const std::pair<const char*, const char*>> names) {
  for (const auto& [own, common] : names)
    if (const auto at = config.find(own); at != config.end() && !at->is_null()) {
      nlohmann::json value = *at;  // the assignment may move what `at` refers to
      config[common] = std::move(value);
    }
  return config;
}

nlohmann::json with_defaults(nlohmann::json config, const nlohmann::json& defaults) {
  for (const auto& [key, value] : defaults.items())
    if (!config.contains(key)) config[key] = value;
  return config;
}

const nlohmann::json* ConfigReader::find(const char* key) const {
  if (!config_.is_object()) return nullptr;
  auto at = config_.find(key);
  return at == config_.end() || at->is_null() ? nullptr : &*at;
}

bool ConfigReader::has(const char* key) const { return find(key) != nullptr; }

int64_t ConfigReader::integer(const char* key, int64_t min, int64_t max, std::optional<int64_t> fallback) {
  const nlohmann::json* value = find(key);
  if (!value) {
    if (!fallback) fail(invalid_argument("config: {} is missing", key));
    return fallback.value_or(min);
  }
  double number = NAN;
  if (value->is_number_integer() || value->is_number_unsigned()) number = static_cast<double>(value->get<int64_t>());
  else if (value->is_number_float()) number = value->get<double>();
  if (!(number >= static_cast<double>(min) && number <= static_cast<double>(max)) || number != std::floor(number)) {
    fail(invalid_argument("config: {} is {}, expected a whole number from {} to {}", key, shown(*value), min, max));
    return min;
  }
  return static_cast<int64_t>(number);
}

double ConfigReader::number(const char* key, double min, double max, std::optional<double> fallback) {
  const nlohmann::json* value = find(key);
  if (!value) {
    if (!fallback) fail(invalid_argument("config: {} is missing", key));
    return fallback.value_or(min);
  }
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= min && number <= max)) {
    fail(invalid_argument("config: {} is {}, expected a number from {} to {}", key, shown(*value), min, max));
    return min;
  }
  return number;
}

bool ConfigReader::boolean(const char* key, bool fallback) {
  const nlohmann::json* value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) {
    fail(invalid_argument("config: {} is {}, expected true or false", key, shown(*value)));
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigReader::text(const char* key, std::string fallback) {
  const nlohmann::json* value = find(key);
  if (!value) return fallback;
  if (!value->is_string()) {
    fail(invalid_argument("config: {} is {}, expected a string", key, shown(*value)));
    return fallback;
  }
  return value->get<std::string>();
}

const nlohmann::json* ConfigReader::object(const char* key) {
  const nlohmann::json* value = find(key);
  if (value && !value->is_object()) {
    fail(invalid_argument("config: {} is {}, expected an object", key, shown(*value)));
    return nullptr;
  }
  return value;
}

}  // namespace redline
