#include "models/checkpoint/gguf_keys.h"

#include <fmt/format.h>

#include <algorithm>

namespace redline {
namespace {

// Maximum length of a list with a value for each layer.
constexpr uint64_t kMaxGgufLayers = 4096;

}  // namespace

std::string GgufKeyReader::full_name(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }

Result<std::optional<int64_t>> GgufKeyReader::find_integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::optional<int64_t>();
  if (auto single = value->as_int()) return single;
  // Check the limit before as_ints, which allocates eight bytes for each element.
  std::optional<std::vector<int64_t>> list;
  if (value->count <= kMaxGgufLayers) list = value->as_ints();
  if (!list || list->empty())
    return invalid_argument("{}: {} is {}, expected a whole number", file_.path(), full_name(key), value->to_string());
  const int64_t of_all = layers_differ_ ? *std::max_element(list->begin(), list->end()) : list->front();
  for (int64_t other : *list)
    if (other != of_all && !(layers_differ_ && other == 0))
      return unsupported("{}: {} differs by layer ({} and {})", file_.path(), full_name(key), of_all, other);
  return std::optional<int64_t>(of_all);
}

void GgufKeyReader::integer(std::string_view key, const char* name) {
  const auto value = find_integer(key);
  if (!value.ok()) return fail(value.status());
  if (!*value) return;
  // Checked here because messages name the file's own keys.
  if (**value < 0 || **value > INT32_MAX)
    return fail(invalid_argument("{}: {} is {}, expected a whole number up to {}", file_.path(), full_name(key),
                                 **value, INT32_MAX));
  config_[name] = **value;
}

void GgufKeyReader::integers(std::string_view key, const char* name) {
  const GgufValue* value = find(key);
  if (!value) return;
  if (const auto single = value->as_int()) {
    config_[name] = *single;
    return;
  }
  const auto list = value->count <= kMaxGgufLayers ? value->as_ints() : std::nullopt;
  if (!list)
    return fail(
        invalid_argument("{}: {} is {}, expected whole numbers", file_.path(), full_name(key), value->to_string()));
  config_[name] = *list;
}

void GgufKeyReader::numbers(std::string_view key, const char* name) {
  const GgufValue* value = find(key);
  if (!value) return;
  const auto list = value->count <= kMaxGgufLayers ? value->as_doubles() : std::nullopt;
  if (!list)
    return fail(
        invalid_argument("{}: {} is {}, expected a list of numbers", file_.path(), full_name(key), value->to_string()));
  config_[name] = *list;
}

void GgufKeyReader::number(std::string_view key, const char* name) {
  const GgufValue* value = find(key);
  if (!value) return;
  const auto number = value->as_double();
  if (!number)
    return fail(invalid_argument("{}: {} is {}, expected a number", file_.path(), full_name(key), value->to_string()));
  // The file stores a float32; config.json has its decimal form.
  config_[name] = *number;
}

void GgufKeyReader::boolean(std::string_view key, const char* name) {
  if (const GgufValue* value = find(key); value && value->as_bool()) config_[name] = *value->as_bool();
}

}  // namespace redline
