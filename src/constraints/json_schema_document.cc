#include "constraints/json_schema_document.h"

#include <algorithm>
#include <cstdio>

#include "base/text_distance.h"
#include "constraints/json_string.h"
#include "text/unicode.h"

namespace redline::json_schema {
namespace {

// Annotations, which do not constrain a value, and containers of schemas that are only used by reference.
const std::set<std::string_view> kAnnotations = {
    "$schema",      "$id",      "id",        "$comment",        "$defs",
    "definitions",  "$anchor",  "title",     "default",         "examples",
    "deprecated",   "readOnly", "writeOnly", "description",     "example",
    "$vocabulary",  "then",     "else",      "contentEncoding", "contentMediaType",
    "contentSchema"};  // then, else: without `if`
const std::set<std::string_view> kEnforced = {"type",
                                              "enum",
                                              "const",
                                              "properties",
                                              "required",
                                              "additionalProperties",
                                              "propertyNames",
                                              "minProperties",
                                              "maxProperties",
                                              "patternProperties",
                                              "items",
                                              "prefixItems",
                                              "minItems",
                                              "maxItems",
                                              "uniqueItems",
                                              "additionalItems",
                                              "minLength",
                                              "maxLength",
                                              "pattern",
                                              "format",
                                              "minimum",
                                              "maximum",
                                              "exclusiveMinimum",
                                              "exclusiveMaximum",
                                              "multipleOf",
                                              "anyOf",
                                              "oneOf",
                                              "allOf",
                                              "$ref",
                                              "nullable"};

}  // namespace

Result<SchemaDocument> SchemaDocument::make(const Json& root, CompileDeadline& deadline) {
  SchemaDocument document;
  document.root_ = &root;
  document.deadline_ = &deadline;
  REDLINE_TRY(document.name_places());
  const Json* draft = root.is_object() ? find(root, "$schema") : nullptr;
  if (draft && draft->is_string())
    for (const char* old : {"draft-03", "draft-04", "draft-06", "draft-07"})
      if (draft->get_ref<const std::string&>().find(old) != std::string::npos) document.ref_hides_siblings_ = true;
  return document;
}

// The JSON pointer of every value, and anchors.
Status SchemaDocument::name_places() {
  std::vector<std::tuple<const Json*, std::string, size_t>> work = {{root_, "", 0}};
  while (!work.empty()) {
    auto [value, pointer, depth] = std::move(work.back());
    work.pop_back();
    REDLINE_TRY(deadline_->check());
    if (depth > kMaxSchemaDepth)
      return invalid_argument("JSON schema: values are nested more than {} deep", kMaxSchemaDepth);
    if (value->is_object()) {
      if (const Json* anchor = find(*value, "$anchor"); anchor && anchor->is_string())
        anchors_.emplace(anchor->get<std::string>(), value);
      for (const auto& [key, inner] : value->items()) {
        std::string part;
        for (const char c : key) part += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
        work.emplace_back(&inner, std::string(pointer).append("/").append(part), depth + 1);
      }
    } else if (value->is_array()) {
      for (size_t i = 0; i < value->size(); ++i)
        work.emplace_back(&(*value)[i], fmt::format("{}/{}", pointer, i), depth + 1);
    }
    places_[value] = std::move(pointer);
  }
  return {};
}

std::string SchemaDocument::place(const Json& value) const {
  const auto found = places_.find(&value);
  return found == places_.end() || found->second.empty() ? "the root" : found->second;
}

Status SchemaDocument::wrong(const Json& schema, std::string_view keyword, std::string_view what) const {
  return invalid_argument("JSON schema: {}: {}: {}", place(schema), keyword, what);
}

Status SchemaDocument::refused(const Json& schema, std::string_view keyword, std::string_view what) const {
  return unsupported("JSON schema: {}: {} {} not supported", place(schema), keyword, what);
}

Status SchemaDocument::check(const Json& schema) {
  if (schema.is_boolean() || !checked_.insert(&schema).second) return {};
  if (!schema.is_object())
    return invalid_argument("JSON schema: {}: a schema is an object, true or false", place(schema));
  if (ref_hides_siblings_ && schema.contains("$ref")) return check_keyword(schema, "$ref", *find(schema, "$ref"));
  bool combines = false;
  for (const char* key : {"$ref", "allOf", "anyOf", "oneOf", "if"}) combines = combines || schema.contains(key);
  for (const auto& [key, value] : schema.items()) {
    if (kAnnotations.contains(key) || key.starts_with("x-")) continue;
    if (key == "unevaluatedProperties" || key == "unevaluatedItems") {
      if (combines) return refused(schema, key, "together with $ref, allOf, anyOf or oneOf is");
      if (schema.contains(key == "unevaluatedItems" ? "items" : "additionalProperties")) continue;
    } else if (!kEnforced.contains(key)) {
      return refused(schema, key);
    }
    REDLINE_TRY(check_keyword(schema, key, value));
  }
  return {};
}

Status SchemaDocument::check_keyword(const Json& schema, const std::string& key, const Json& value) const {
  const auto require = [&](bool holds, const char* what) { return holds ? Status() : wrong(schema, key, what); };
  const auto is_one_of = [&](std::initializer_list<std::string_view> keys) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  if (key == "const") return {};
  if (key == "type") return check_type_names(schema, value);
  if (is_one_of({"enum", "required", "anyOf", "oneOf", "allOf", "prefixItems"})) {
    REDLINE_TRY(require(value.is_array(), "must be an array"));
    if (key == "required")
      for (const Json& name : value) REDLINE_TRY(require(name.is_string(), "must be an array of names"));
    return {};
  }
  if (is_one_of({"properties", "patternProperties"})) return require(value.is_object(), "must be an object");
  if (is_one_of({"minProperties", "maxProperties", "minItems", "maxItems", "minLength", "maxLength"})) {
    REDLINE_TRY(
        require(value.is_number() && is_integral(value) && value.get<double>() >= 0, "must be an integer, 0 or more"));
    if (key.starts_with("min") && count_of(value) == Grammar::kUnbounded)
      return refused(schema, key, fmt::format("of {} or more is", Grammar::kUnbounded));
    return {};
  }
  if (is_one_of({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) {
    REDLINE_TRY(require(value.is_number(), "must be a number"));
    if (!decimal_of(value)) return refused(schema, key, "with more than 40 digits is");
    return key == "multipleOf" ? check_divisor(schema, value) : Status();
  }
  if (key == "uniqueItems") return require(value.is_boolean(), "must be true or false");
  if (key == "nullable") {
    REDLINE_TRY(require(value.is_boolean(), "must be true or false"));
    return value.get<bool>() ? refused(schema, key, "(write a list of types with \"null\") is") : Status();
  }
  if (key == "pattern") return require(value.is_string(), "must be a regular expression");
  if (key == "format") {
    REDLINE_TRY(require(value.is_string(), "must be a name"));
    const std::string& name = value.get_ref<const std::string&>();
    if (!format_pattern(name).empty()) return {};
    return refused(schema, key,
                   fmt::format("\"{}\"{} (there are {}) is", repair_utf8(name), the_nearest(name, known_formats()),
                               known_formats()));
  }
  if (key == "$ref") return require(value.is_string(), "must be a reference");
  return require(value.is_object() || value.is_boolean() || (key == "items" && value.is_array()), "must be a schema");
}

Status SchemaDocument::check_type_names(const Json& schema, const Json& value) const {
  if (!value.is_string() && !value.is_array()) return wrong(schema, "type", "must be a name or a list of names");
  const auto check_name = [&](const Json& name) -> Status {
    if (name.is_string() && type_named(name.get<std::string>()) != 0) return {};
    return wrong(schema, "type",
                 fmt::format("names an unknown type, {}{}", name.dump(),
                             name.is_string() ? did_you_mean(name.get<std::string>(), type_names()) : ""));
  };
  if (value.is_string()) return check_name(value);
  for (const Json& name : value) REDLINE_TRY(check_name(name));
  return {};
}

Status SchemaDocument::check_divisor(const Json& schema, const Json& value) const {
  const Decimal divisor = *decimal_of(value);
  if (divisor.negative || divisor.is_zero()) return wrong(schema, "multipleOf", "must be more than 0");
  if (!divisor.is_integer() || divisor.whole.size() > 4 || std::stoul(divisor.whole) > kMaxDivisor)
    return refused(schema, "multipleOf", "other than an integer up to 1000 is");
  return {};
}

Result<const Json*> SchemaDocument::resolve(const Json& schema) const {
  const std::string& ref = find(schema, "$ref")->get_ref<const std::string&>();
  if (!ref.starts_with('#')) return refused(schema, "$ref", fmt::format("to \"{}\", another document, is", ref));
  std::string decoded;
  for (size_t i = 1; i < ref.size(); ++i) {
    unsigned value = 0;
    if (ref[i] == '%' && i + 2 < ref.size() && std::sscanf(ref.c_str() + i + 1, "%2x", &value) == 1) {
      decoded.push_back(static_cast<char>(value));
      i += 2;
    } else {
      decoded.push_back(ref[i]);
    }
  }
  if (!decoded.empty() && decoded[0] != '/') {
    const auto found = anchors_.find(decoded);
    if (found != anchors_.end()) return found->second;
    return wrong(schema, "$ref", fmt::format("there is no $anchor \"{}\"", decoded));
  }
  const Json* at = root_;
  for (size_t begin = 1; begin <= decoded.size() && !decoded.empty();) {
    const size_t end = std::min(decoded.find('/', begin), decoded.size());
    std::string part;
    for (size_t i = begin; i < end; ++i) {
      if (decoded[i] == '~' && i + 1 < end) part.push_back(decoded[++i] == '1' ? '/' : '~');
      else part.push_back(decoded[i]);
    }
    const Json* next = nullptr;
    if (at->is_object()) next = find(*at, part.c_str());
    if (at->is_array() && !part.empty() && part.size() < 9 &&
        part.find_first_not_of("0123456789") == std::string::npos && std::stoul(part) < at->size())
      next = &(*at)[std::stoul(part)];
    if (!next) return wrong(schema, "$ref", fmt::format("\"{}\" leads nowhere", ref));
    at = next;
    begin = end + 1;
  }
  return at;
}

Status SchemaDocument::flatten(Schemas& schemas, std::vector<const Json*>& alternatives) {
  std::set<const Json*> seen;
  Schemas flat;
  std::vector<const Json*> work(schemas.rbegin(), schemas.rend());
  while (!work.empty()) {
    const Json* schema = work.back();
    work.pop_back();
    if (!seen.insert(schema).second) continue;
    REDLINE_TRY(deadline_->check());
    REDLINE_TRY(check(*schema));
    if (schema->is_boolean()) {
      if (!schema->get<bool>()) flat.push_back(schema);
      continue;
    }
    if (schema->contains("$ref")) {
      REDLINE_ASSIGN(const Json* target, resolve(*schema));
      work.push_back(target);
      if (ref_hides_siblings_) continue;
    }
    flat.push_back(schema);
    if (const Json* all = find(*schema, "allOf"))
      for (auto it = all->rbegin(); it != all->rend(); ++it) work.push_back(&*it);
    for (const char* key : {"anyOf", "oneOf"})
      if (const Json* list = find(*schema, key))
        if (std::find(alternatives.begin(), alternatives.end(), list) == alternatives.end())
          alternatives.push_back(list);
  }
  schemas = std::move(flat);
  return {};
}

}  // namespace redline::json_schema
