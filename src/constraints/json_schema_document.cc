#include "constraints/json_schema_document.h"

#include <algorithm>
#include <cstdio>

#include "base/text_distance.h"
#include "constraints/json_string.h"
#include "text/unicode.h"

namespace redline::json_schema {
namespace {

bool has_scheme(std::string_view uri) {
  const size_t colon = uri.find(':');
  return colon != std::string_view::npos && colon > 0 && uri.find_first_of("/?#") > colon;
}

// Returns the path without "." and ".." (RFC 3986, section 5.2.4).
std::string without_dots(std::string_view path) {
  std::vector<std::string_view> parts;
  bool ends_with_slash = false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    ends_with_slash = part.empty() || part == "." || part == "..";
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
    begin = end + 1;
  }
  std::string joined;
  for (const std::string_view part : parts) joined.append("/").append(part);
  if (ends_with_slash) joined += "/";
  return joined;
}

// Resolves a reference relative to a base, both without fragments (RFC 3986, section 5.2.2).
std::string resolved_uri(const std::string& base, std::string_view ref) {
  if (ref.empty()) return base;
  if (has_scheme(ref) || !has_scheme(base)) return std::string(ref);
  const size_t scheme = base.find(':') + 1;
  if (ref.starts_with("//")) return base.substr(0, scheme).append(ref);
  size_t path = scheme;
  if (base.compare(scheme, 2, "//") == 0) path = std::min(base.find('/', scheme + 2), base.size());
  if (ref.starts_with('/')) return base.substr(0, path) + without_dots(ref);
  if (path == scheme) return std::string(ref);  // the base has no path that can be extended: urn:uuid:...
  const size_t query = std::min(base.find('?', path), base.size());
  const size_t last = base.rfind('/', query == 0 ? 0 : query - 1);
  std::string directory = last == std::string::npos || last < path ? "/" : base.substr(path, last + 1 - path);
  return base.substr(0, path) + without_dots(directory.append(ref));
}

}  // namespace

Result<SchemaDocument> SchemaDocument::make(const Json& root, CompileDeadline& deadline, bool is_relaxed) {
  SchemaDocument document;
  document.root_ = &root;
  document.deadline_ = &deadline;
  document.is_relaxed_ = is_relaxed;
  const Json* draft = root.is_object() ? find(root, "$schema") : nullptr;
  document.names_draft_ = draft != nullptr;
  if (draft && draft->is_string())
    for (const char* old : {"draft-03", "draft-04", "draft-06", "draft-07"})
      if (draft->get_ref<const std::string&>().find(old) != std::string::npos) document.ref_hides_siblings_ = true;
  REDLINE_TRY(document.name_places());
  document.identified_.emplace("", &root);
  document.name_identifiers(root, "", false);
  return document;
}

// Records the JSON pointer of every value.
Status SchemaDocument::name_places() {
  std::vector<std::tuple<const Json*, std::string, size_t>> work = {{root_, "", 0}};
  while (!work.empty()) {
    auto [value, pointer, depth] = std::move(work.back());
    work.pop_back();
    REDLINE_TRY(deadline_->check());
    if (depth > kMaxSchemaDepth)
      return invalid_argument("JSON schema: values are nested more than {} deep", kMaxSchemaDepth);
    if (value->is_object()) {
      for (const auto& [key, inner] : value->items()) {
        if (key.starts_with(kOwnMark))
          return unsupported("JSON schema: {}: a name that begins with U+0001 is not supported",
                             pointer.empty() ? "the root" : pointer);
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

// Records the base URI of every schema, and the URIs of schemas with an identifier or an anchor. `is_name_map`: the
// members have names that the user chose, not keywords.
void SchemaDocument::name_identifiers(const Json& value, const std::string& base, bool is_name_map) {
  if (value.is_array()) {
    for (const Json& item : value) name_identifiers(item, base, false);
    return;
  }
  if (!value.is_object()) return;
  std::string own = base;
  if (!is_name_map) {
    const bool is_hidden = ref_hides_siblings_ && value.contains("$ref");
    for (const char* key : {"$id", "id"}) {
      const Json* id = is_hidden ? nullptr : find(value, key);
      if (!id || !id->is_string()) continue;
      const std::string& text = id->get_ref<const std::string&>();
      const size_t hash = std::min(text.find('#'), text.size());
      own = resolved_uri(base, std::string_view(text).substr(0, hash));
      if (hash == 0 || hash + 1 < text.size()) identified_.emplace(own + text.substr(hash), &value);
      if (hash > 0) identified_.emplace(own, &value);
      break;
    }
    for (const char* key : {"$anchor", "$dynamicAnchor"})
      if (const Json* anchor = find(value, key); anchor && anchor->is_string()) {
        identified_.emplace(own + "#" + anchor->get<std::string>(), &value);
        if (key[1] == 'd') dynamic_anchors_[anchor->get<std::string>()].insert(&value);
      }
    if (const Json* anchor = find(value, "$recursiveAnchor"); anchor && anchor->is_boolean() && anchor->get<bool>())
      has_recursive_anchor_ = true;
    has_unevaluated_ =
        has_unevaluated_ || value.contains("unevaluatedProperties") || value.contains("unevaluatedItems");
    bases_[&value] = own;
  }
  for (const auto& [key, inner] : value.items()) {
    const bool is_value = key == "enum" || key == "const" || key == "default" || key == "examples";
    if (is_value && !is_name_map) continue;
    const bool has_names = key == "properties" || key == "patternProperties" || key == "$defs" ||
                           key == "definitions" || key == "dependentSchemas" || key == "dependencies";
    name_identifiers(inner, own, has_names && !is_name_map);
  }
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

Status SchemaDocument::leave_out(const Json& schema, std::string_view keyword, std::string_view what) {
  if (!is_relaxed_) return refused(schema, keyword, what);
  unenforced_.emplace(keyword);
  return {};
}

const Json* SchemaDocument::own(Json schema, const Json& origin) {
  own_.push_back(std::move(schema));
  const Json* kept = &own_.back();
  if (const auto found = places_.find(&origin); found != places_.end()) {
    std::vector<const Json*> work = {kept};
    while (!work.empty()) {
      const Json* value = work.back();
      work.pop_back();
      places_.emplace(value, found->second);
      if (value->is_structured())
        for (const Json& inner : *value) work.push_back(&inner);
    }
  }
  return kept;
}

Json SchemaDocument::at(const Json& schema) {
  if (schema.is_boolean()) return schema;
  const auto [found, is_new] = numbers_.try_emplace(&schema, numbered_.size());
  if (is_new) numbered_.push_back(&schema);
  return {{kAt, found->second}};
}

Status SchemaDocument::check(const Json& schema) {
  if (schema.is_boolean() || !checked_.insert(&schema).second) return {};
  if (!schema.is_object())
    return invalid_argument("JSON schema: {}: a schema is an object, true or false", place(schema));
  if (ref_hides_siblings_ && schema.contains("$ref")) return check_keyword(schema, "$ref", *find(schema, "$ref"));
  for (const auto& [key, value] : schema.items()) REDLINE_TRY(check_keyword(schema, key, value));
  return {};
}

Status SchemaDocument::check_keyword(const Json& schema, const std::string& key, const Json& value) const {
  const auto require = [&](bool holds, const char* what) { return holds ? Status() : wrong(schema, key, what); };
  const auto is_one_of = [&](std::initializer_list<std::string_view> keys) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  const auto is_schema = [](const Json& v) { return v.is_object() || v.is_boolean(); };
  if (key == "type") return check_type_names(schema, value);
  if (key == "required" && value.is_boolean()) return {};  // draft 3 has it in a property
  if (is_one_of({"enum", "required", "anyOf", "oneOf", "allOf", "prefixItems"})) {
    REDLINE_TRY(require(value.is_array(), "must be an array"));
    if (key == "required")
      for (const Json& name : value) REDLINE_TRY(require(name.is_string(), "must be an array of names"));
    return {};
  }
  if (is_one_of({"properties", "patternProperties", "dependentSchemas", "dependentRequired", "dependencies"})) {
    REDLINE_TRY(require(value.is_object(), "must be an object"));
    const bool takes_names = key == "dependentRequired" || key == "dependencies";
    for (const auto& [name, inner] : value.items()) {
      if (key[0] != 'd') continue;
      bool is_list = inner.is_array() && takes_names;
      for (const Json& item : is_list ? inner : Json::array()) is_list = is_list && item.is_string();
      REDLINE_TRY(require(
          is_list || (key != "dependentRequired" && is_schema(inner)) || (key == "dependencies" && inner.is_string()),
          takes_names ? "must have lists of names" : "must have schemas"));
    }
    return {};
  }
  if (is_one_of({"minProperties", "maxProperties", "minItems", "maxItems", "minLength", "maxLength", "minContains",
                 "maxContains"})) {
    REDLINE_TRY(
        require(value.is_number() && is_integral(value) && value.get<double>() >= 0, "must be an integer, 0 or more"));
    if (key.starts_with("min") && count_of(value) == Grammar::kUnbounded)
      return refused(schema, key, fmt::format("of {} or more is", Grammar::kUnbounded));
    return {};
  }
  // Draft 4 has true or false here.
  if (is_one_of({"exclusiveMinimum", "exclusiveMaximum"}) && value.is_boolean()) return {};
  if (is_one_of({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) {
    REDLINE_TRY(require(value.is_number(), "must be a number"));
    const auto number = decimal_of(value);
    if (!number) return refused(schema, key, "with more than 40 digits is");
    return require(key != "multipleOf" || (!number->negative && !number->is_zero()), "must be more than 0");
  }
  if (key == "uniqueItems") return require(value.is_boolean(), "must be true or false");
  if (key == "pattern") return require(value.is_string(), "must be a regular expression");
  if (is_one_of({"format", "$ref", "$dynamicRef", "$recursiveRef"})) return require(value.is_string(), "must be text");
  if (is_one_of({"not", "if", "then", "else", "contains", "propertyNames", "additionalProperties", "additionalItems",
                 "unevaluatedProperties", "unevaluatedItems", "items"}))
    return require(is_schema(value) || (key == "items" && value.is_array()), "must be a schema");
  return {};
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
  for (const Json& name : value)
    if (!name.is_object()) REDLINE_TRY(check_name(name));
  return {};
}

Result<const Json*> SchemaDocument::target_of(const Json& schema) {
  if (!schema.is_object()) return nullptr;
  if (const Json* number = find(schema, kAt)) return numbered_[number->get<size_t>()];
  if (const Json* ref = find(schema, "$ref")) return resolve(schema, "$ref", ref->get_ref<const std::string&>());
  if (const Json* ref = find(schema, "$dynamicRef")) {
    const std::string& text = ref->get_ref<const std::string&>();
    REDLINE_ASSIGN(const Json* target, resolve(schema, "$dynamicRef", text));
    // If several anchors have the name, the dynamic scope decides, which is not supported.
    const size_t hash = text.find('#');
    const auto anchors = dynamic_anchors_.find(hash == std::string::npos ? "" : text.substr(hash + 1));
    if (anchors != dynamic_anchors_.end() && anchors->second.contains(target) && anchors->second.size() > 1)
      return refused(schema, "$dynamicRef", "to one of several anchors is");
    return target;
  }
  if (const Json* ref = find(schema, "$recursiveRef")) {
    if (has_recursive_anchor_ && identified_.size() > 2)
      return refused(schema, "$recursiveRef", "among several $recursiveAnchor is");
    return resolve(schema, "$recursiveRef", ref->get_ref<const std::string&>());
  }
  return nullptr;
}

Status SchemaDocument::flatten(Schemas& schemas, std::vector<const Json*>& alternatives, const PartsOf& parts_of) {
  std::set<const Json*> seen;
  Schemas flat;
  std::vector<const Json*> work(schemas.rbegin(), schemas.rend());
  while (!work.empty()) {
    const Json* schema = work.back();
    work.pop_back();
    if (!seen.insert(schema).second) continue;
    REDLINE_TRY(deadline_->check());
    REDLINE_ASSIGN(const Parts* parts, parts_of(*schema));
    if (schema->is_boolean()) {
      if (!schema->get<bool>()) flat.push_back(schema);
      continue;
    }
    work.insert(work.end(), parts->schemas.rbegin(), parts->schemas.rend());
    if (ref_hides_siblings_ && schema->contains("$ref")) continue;
    flat.push_back(schema);
    for (const Json* list : parts->lists)
      if (std::find(alternatives.begin(), alternatives.end(), list) == alternatives.end()) alternatives.push_back(list);
  }
  schemas = std::move(flat);
  return {};
}

Status SchemaDocument::flatten(Schemas& schemas, std::vector<const Json*>& alternatives) {
  Parts parts;
  return flatten(schemas, alternatives, [&](const Json& schema) -> Result<const Parts*> {
    parts = {};
    REDLINE_TRY(check(schema));
    if (schema.is_boolean()) return &parts;
    REDLINE_ASSIGN(const Json* target, target_of(schema));
    const bool is_hidden = ref_hides_siblings_ && schema.contains("$ref");
    if (const Json* all = is_hidden ? nullptr : find(schema, "allOf"))
      for (const Json& branch : *all) parts.schemas.push_back(&branch);
    if (target) parts.schemas.push_back(target);
    for (const char* key : {"anyOf", "oneOf"})
      if (const Json* list = find(schema, key)) parts.lists.push_back(list);
    return &parts;
  });
}

Result<const Json*> SchemaDocument::resolve(const Json& schema, const char* keyword, const std::string& ref) {
  const size_t hash = std::min(ref.find('#'), ref.size());
  // Draft 7 ignores an $id next to $ref, and later drafts do not, so the schema must name its draft.
  if (hash > 0 && !names_draft_ && schema.contains("$id"))
    return refused(schema, keyword, "beside $id without $schema is");
  const auto own_base = bases_.find(&schema);
  const std::string base = own_base == bases_.end() ? "" : own_base->second;
  const std::string uri = hash == 0 ? base : resolved_uri(base, std::string_view(ref).substr(0, hash));
  std::string decoded;
  for (size_t i = hash + 1; i < ref.size(); ++i) {
    unsigned value = 0;
    if (ref[i] == '%' && i + 2 < ref.size() && std::sscanf(ref.c_str() + i + 1, "%2x", &value) == 1) {
      decoded.push_back(static_cast<char>(value));
      i += 2;
    } else {
      decoded.push_back(ref[i]);
    }
  }
  const auto resource = identified_.find(uri);
  if (resource == identified_.end())
    return refused(schema, keyword, fmt::format("to \"{}\", another document, is", repair_utf8(ref)));
  if (!decoded.empty() && decoded[0] != '/') {
    const auto found = identified_.find(uri + "#" + decoded);
    if (found != identified_.end()) return found->second;
    return wrong(schema, keyword, fmt::format("there is no $anchor \"{}\"", repair_utf8(decoded)));
  }
  const Json* at = resource->second;
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
    if (!next) return wrong(schema, keyword, fmt::format("\"{}\" leads nowhere", repair_utf8(ref)));
    at = next;
    begin = end + 1;
  }
  return at;
}

}  // namespace redline::json_schema
