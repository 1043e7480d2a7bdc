#include "constraints/json_schema_keywords.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace redline::json_schema {
namespace {

constexpr std::pair<std::string_view, uint8_t> kTypeNames[] = {
    {"null", kNull},     {"boolean", kBoolean}, {"integer", kInteger}, {"number", kNumber},
    {"string", kString}, {"array", kArray},     {"object", kObject}};

}  // namespace

uint8_t type_named(std::string_view name) {
  for (const auto& [known, bits] : kTypeNames)
    if (known == name) return bits;
  return 0;
}

std::vector<std::string_view> type_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, bits] : kTypeNames) names.push_back(name);
  return names;
}

bool is_integral(const Json& value) {
  return value.is_number_integer() ||
         (value.is_number_float() && value.get<double>() == std::nearbyint(value.get<double>()));
}

uint8_t type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return kNull;
    case Json::value_t::boolean: return kBoolean;
    case Json::value_t::string: return kString;
    case Json::value_t::array: return kArray;
    case Json::value_t::object: return kObject;
    default: return is_integral(value) ? kInteger : kFraction;
  }
}

size_t count_chars(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

bool equals(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.get<double>() == b.get<double>();
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_array()) {
    for (size_t i = 0; i < a.size(); ++i)
      if (!equals(a[i], b[i])) return false;
    return true;
  }
  if (a.is_object()) {
    for (const auto& [key, value] : a.items()) {
      const Json* other = find(b, key.c_str());
      if (!other || !equals(value, *other)) return false;
    }
    return true;
  }
  return a == b;
}

const Json* find(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

std::optional<Decimal> decimal_of(const Json& value) {
  return Decimal::from(value.is_number_float() ? fmt::format("{}", value.get<double>()) : value.dump());
}

uint32_t count_of(const Json& value) {
  const double count = value.get<double>();
  return count >= kUnbounded ? kUnbounded : static_cast<uint32_t>(count);
}

uint8_t types_of(const Schemas& schemas) {
  uint8_t types = kAllTypes;
  for (const Json* schema : schemas) {
    if (!schema->is_object()) continue;
    if (const Json* own = find(*schema, kOwnTypes)) types &= own->get<uint8_t>();
    const Json* type = find(*schema, "type");
    if (!type) continue;
    uint8_t named = 0;
    if (type->is_string()) named = type_named(type->get<std::string>());
    else
      for (const Json& name : *type)
        named |= name.is_string() ? type_named(name.get<std::string>()) : static_cast<uint8_t>(kAllTypes);
    // OpenAPI 3.0 allows null by this keyword.
    if (const Json* nullable = find(*schema, "nullable"); nullable && nullable->is_boolean() && nullable->get<bool>())
      named |= kNull;
    types &= named;
  }
  return types;
}

void bound(const Json& schema, NumberRange& range) {
  if (!schema.is_object()) return;
  // In draft 4, exclusiveMinimum and exclusiveMaximum are true or false.
  const Json *above = find(schema, "exclusiveMinimum"), *below = find(schema, "exclusiveMaximum");
  const auto is_true = [](const Json* v) { return v && v->is_boolean() && v->get<bool>(); };
  if (const Json* v = find(schema, "minimum")) range.raise_least(*decimal_of(*v), is_true(above));
  if (above && above->is_number()) range.raise_least(*decimal_of(*above), true);
  if (const Json* v = find(schema, "maximum")) range.lower_greatest(*decimal_of(*v), is_true(below));
  if (below && below->is_number()) range.lower_greatest(*decimal_of(*below), true);
}

void bound_length(const Schemas& schemas, const char* min_key, const char* greatest_key, uint32_t& least,
                  uint32_t& greatest) {
  for (const Json* schema : schemas) {
    if (!schema->is_object()) continue;
    if (const Json* v = find(*schema, min_key)) least = std::max(least, count_of(*v));
    if (const Json* v = find(*schema, greatest_key)) greatest = std::min(greatest, count_of(*v));
  }
}

const Json* rest_of(const Json& schema) {
  const Json* items = find(schema, "items");
  return items && items->is_array() ? find(schema, "additionalItems") : items;
}

const Json* items_at(const Json& schema, size_t i) {
  const Json *prefix = find(schema, "prefixItems"), *items = find(schema, "items");
  if (items && items->is_array()) prefix = items;
  return prefix && i < prefix->size() ? &(*prefix)[i] : rest_of(schema);
}

Schemas items_at(const Schemas& schemas, size_t i) {
  Schemas found;
  for (const Json* schema : schemas)
    if (const Json* item = items_at(*schema, i)) found.push_back(item);
  return found;
}

size_t prefix_of(const Json& schema) {
  const Json *prefix = find(schema, "prefixItems"), *items = find(schema, "items");
  if (items && items->is_array()) prefix = items;
  return prefix ? prefix->size() : 0;
}

bool has_false(const Schemas& schemas) {
  return std::any_of(schemas.begin(), schemas.end(), [](const Json* s) { return s->is_boolean() && !s->get<bool>(); });
}

}  // namespace redline::json_schema
