#include "constraints/json_schema_texts.h"

#include <algorithm>
#include <span>

namespace redline::json_schema {
namespace {

/// Keywords without effect on the accepted values. Definitions have an effect only through references, which are
/// resolved.
constexpr std::string_view kAnnotations[] = {"$comment",
                                             "$defs",
                                             "$schema",
                                             "default",
                                             "definitions",
                                             "deprecated",
                                             "description",
                                             "enumDescriptions",
                                             "example",
                                             "examples",
                                             "markdownDescription",
                                             "readOnly",
                                             "title",
                                             "writeOnly"};
/// Keywords that depend on the place of the schema, on schemas beside it, or on the references that lead to it.
constexpr std::string_view kOfPlace[] = {"$anchor", "$dynamicAnchor",   "$dynamicRef",
                                         "$id",     "$recursiveAnchor", "$recursiveRef",
                                         "id",      "unevaluatedItems", "unevaluatedProperties"};
constexpr std::string_view kNamedSchemas[] = {"properties", "patternProperties", "dependentSchemas", "dependencies"};
constexpr std::string_view kSchemaLists[] = {"allOf", "anyOf", "oneOf", "prefixItems"};
constexpr std::string_view kSchemas[] = {
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"};

bool is_among(std::span<const std::string_view> keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

std::optional<uint32_t> SchemaTexts::number_of(const Json& schema, size_t depth) {
  constexpr size_t kMaxDepth = 2 * kMaxSchemaDepth;  // references may lead through a whole document
  if (depth > kMaxDepth) return std::nullopt;
  const auto [found, is_new] = numbers_.try_emplace(&schema);
  if (!is_new) return found->second;
  if (const Json* target = target_of_mere_reference(schema)) return found->second = number_of(*target, depth + 1);
  std::optional<std::string> text = text_of(schema, depth);
  if (!text) return std::nullopt;
  return found->second = grammar_.number_of(std::move(*text));
}

const Json* SchemaTexts::target_of_mere_reference(const Json& schema) {
  const Json* reference = schema.is_object() ? find(schema, "$ref") : nullptr;
  if (!reference || !reference->is_string()) return nullptr;
  if (!document_.ref_hides_siblings())
    for (const auto& [key, value] : schema.items())
      if (key != "$ref" && !is_among(kAnnotations, key)) return nullptr;
  const Result<const Json*> target = document_.target_of(schema);
  return target.ok() ? *target : nullptr;
}

std::optional<std::string> SchemaTexts::text_of(const Json& schema, size_t depth) {
  if (schema.is_boolean()) return schema.get<bool>() ? "{}" : "false";
  if (!schema.is_object()) return std::nullopt;
  std::vector<std::string> parts;
  for (const auto& [key, value] : schema.items()) {
    if (key.starts_with(kOwnMark) || is_among(kOfPlace, key)) return std::nullopt;
    if (is_among(kAnnotations, key)) continue;
    std::optional<std::string> text;
    if (key == "$ref") {
      const Result<const Json*> target = value.is_string() ? document_.target_of(schema) : nullptr;
      if (!target.ok() || !*target) return std::nullopt;
      const std::optional<uint32_t> number = number_of(**target, depth + 1);
      if (!number) return std::nullopt;
      text = fmt::format("#{}", *number);
    } else {
      text = keyword_text(key, value, depth);
    }
    if (!text) return std::nullopt;
    parts.push_back(Json(key).dump() + ":" + *text);
  }
  std::sort(parts.begin(), parts.end());
  std::string text = "{";
  for (const std::string& part : parts) text += part + ",";
  return parts.empty() ? "{}" : text + "}";
}

std::optional<std::string> SchemaTexts::keyword_text(const std::string& key, const Json& value, size_t depth) {
  const auto is_schema = [](const Json& v) { return v.is_object() || v.is_boolean(); };
  if (is_among(kSchemas, key) && is_schema(value)) {
    const std::optional<uint32_t> number = number_of(value, depth + 1);
    return number ? std::optional(fmt::format("#{}", *number)) : std::nullopt;
  }
  const bool is_list = value.is_array() && (is_among(kSchemaLists, key) || key == "items");
  if (!is_list && !(value.is_object() && is_among(kNamedSchemas, key))) return value.dump();
  std::string text = is_list ? "[" : "{";
  for (const auto& [name, inner] : value.items()) {
    if (!is_list) text += Json(name).dump() + ":";
    // Draft 3 has `required` of the object in the schema of the property, also beside a reference.
    if (const Json* required = inner.is_object() ? find(inner, "required") : nullptr;
        required && required->is_boolean())
      text += required->dump();
    if (is_schema(inner)) {
      const std::optional<uint32_t> number = number_of(inner, depth + 1);
      if (!number) return std::nullopt;
      text += fmt::format("#{}", *number);
    } else {
      text += inner.dump();
    }
    text += ",";
  }
  return text;
}

}  // namespace redline::json_schema
