#include "constraints/json_schema_values.h"

#include <algorithm>
#include <functional>

#include "constraints/json_string.h"

namespace redline::json_schema {
namespace {

bool has_length(const Json& schema, const char* min_key, const char* greatest_key, size_t count) {
  uint32_t least = 0, greatest = kUnbounded;
  bound_length({&schema}, min_key, greatest_key, least, greatest);
  return count >= least && count <= greatest;
}

}  // namespace

Result<bool> SchemaValues::validates(const Json& value, const Json& schema, size_t depth) {
  REDLINE_TRY(document_.deadline().check());
  if (depth > 2 * kMaxSchemaDepth) return document_.wrong(schema, "$ref", "refers to itself without end");
  if (schema.is_boolean()) return schema.get<bool>();
  REDLINE_TRY(document_.check(schema));
  if (schema.contains("$ref")) {
    REDLINE_ASSIGN(const Json* target, document_.resolve(schema));
    REDLINE_ASSIGN(const bool valid, validates(value, *target, depth + 1));
    if (!valid || document_.ref_hides_siblings()) return valid;
  }
  REDLINE_ASSIGN(const bool is_combined, validates_combined(value, schema, depth));
  if (!is_combined || !(types_of({&schema}) & type_of(value))) return false;
  if (const Json* one = find(schema, "const"); one && !equals(*one, value)) return false;
  if (const Json* list = find(schema, "enum")) {
    // A value of the list itself is not looked for: a list of n values would take n^2 steps.
    const bool is_own =
        !list->empty() && !std::less<>()(&value, &list->front()) && !std::less<>()(&list->back(), &value);
    if (!is_own && std::none_of(list->begin(), list->end(), [&](const Json& v) { return equals(v, value); }))
      return false;
  }
  if (value.is_number()) return validates_number(value, schema);
  if (value.is_array()) return validates_array(value, schema, depth);
  if (value.is_object()) return validates_object(value, schema, depth);
  if (!value.is_string()) return true;
  const std::string& text = value.get_ref<const std::string&>();
  if (!has_length(schema, "minLength", "maxLength", count_chars(text))) return false;
  REDLINE_ASSIGN(const auto language, string_language({&schema}, RegexSyntax::Reading::kStrict));
  return !language || language->matches(text);
}

// allOf, anyOf and oneOf.
Result<bool> SchemaValues::validates_combined(const Json& value, const Json& schema, size_t depth) {
  if (const Json* all = find(schema, "allOf"))
    for (const Json& branch : *all) {
      REDLINE_ASSIGN(const bool valid, validates(value, branch, depth + 1));
      if (!valid) return false;
    }
  for (const char* key : {"anyOf", "oneOf"})
    if (const Json* list = find(schema, key)) {
      size_t matches = 0;
      for (const Json& branch : *list) {
        REDLINE_ASSIGN(const bool valid, validates(value, branch, depth + 1));
        matches += valid;
      }
      if (matches == 0 || (key[0] == 'o' && matches != 1)) return false;
    }
  return true;
}

Result<bool> SchemaValues::validates_number(const Json& value, const Json& schema) const {
  const auto number = decimal_of(value);
  if (!number) return false;
  NumberRange range;
  bound(schema, range);
  if (range.least && number->compare(*range.least) < (range.excludes_least ? 1 : 0)) return false;
  if (range.greatest && number->compare(*range.greatest) > (range.excludes_greatest ? -1 : 0)) return false;
  const Json* v = find(schema, "multipleOf");
  if (!v) return true;
  const uint64_t divisor = std::stoull(decimal_of(*v)->whole);
  uint64_t rest = 0;
  for (const char c : number->whole) rest = (rest * 10 + static_cast<uint64_t>(c - '0')) % divisor;
  return rest == 0 && number->is_integer();
}

Result<bool> SchemaValues::validates_array(const Json& value, const Json& schema, size_t depth) {
  if (!has_length(schema, "minItems", "maxItems", value.size())) return false;
  const Json* unique = find(schema, "uniqueItems");
  for (size_t i = 0; i < value.size(); ++i) {
    for (size_t j = 0; unique && unique->get<bool>() && j < i; ++j)
      if (equals(value[i], value[j])) return false;
    if (const Json* item = items_at(schema, i)) {
      REDLINE_ASSIGN(const bool valid, validates(value[i], *item, depth + 1));
      if (!valid) return false;
    }
  }
  return true;
}

Result<bool> SchemaValues::validates_object(const Json& value, const Json& schema, size_t depth) {
  if (!has_length(schema, "minProperties", "maxProperties", value.size())) return false;
  if (const Json* names = find(schema, "required"))
    for (const Json& name : *names)
      if (!value.contains(name.get<std::string>())) return false;
  for (const auto& [key, member] : value.items()) {
    REDLINE_ASSIGN(const bool valid, validates_member(key, member, schema, depth));
    if (!valid) return false;
  }
  return true;
}

Result<bool> SchemaValues::validates_member(const std::string& key, const Json& member, const Json& schema,
                                            size_t depth) {
  Schemas of_value;
  const Json *properties = find(schema, "properties"), *patterns = find(schema, "patternProperties");
  if (const Json* own = properties ? find(*properties, key.c_str()) : nullptr) of_value.push_back(own);
  if (patterns)
    for (const auto& [pattern, own] : patterns->items()) {
      REDLINE_ASSIGN(const ByteDfa language,
                     search_language(schema, "patternProperties", pattern, RegexSyntax::Reading::kStrict));
      if (language.matches(key)) of_value.push_back(&own);
    }
  if (const Json* more = additional(schema); more && of_value.empty()) of_value.push_back(more);
  for (const Json* own : of_value) {
    REDLINE_ASSIGN(const bool valid, validates(member, *own, depth + 1));
    if (!valid) return false;
  }
  const Json* names = find(schema, "propertyNames");
  return names ? validates(Json(key), *names, depth + 1) : Result<bool>(true);
}

Result<std::optional<std::vector<const Json*>>> SchemaValues::values_of(const Schemas& schemas) {
  std::optional<std::vector<const Json*>> values;
  for (const Json* schema : schemas) {
    if (!schema->is_object()) continue;
    std::vector<const Json*> own;
    const Json *list = find(*schema, "enum"), *one = find(*schema, "const");
    if (!list && !one) continue;
    if (one) own.push_back(one);
    else
      for (const Json& value : *list) own.push_back(&value);
    if (!values) values = own;  // the others are checked as keywords
  }
  if (!values) return values;
  std::vector<const Json*> kept;
  for (const Json* value : *values) {
    bool holds = true;
    for (const Json* schema : schemas) {
      REDLINE_ASSIGN(const bool valid, validates(*value, *schema));
      holds = holds && valid;
    }
    if (holds) kept.push_back(value);
  }
  return std::optional(kept);
}

Result<bool> SchemaValues::are_disjoint(const Json& a, const Json& b, int depth) {
  Schemas x = {&a}, y = {&b};
  std::vector<const Json*> of_x, of_y;
  constexpr int kMaxNested = 6;
  if (depth > kMaxNested) return false;
  REDLINE_TRY(document_.flatten(x, of_x));
  REDLINE_TRY(document_.flatten(y, of_y));
  for (const auto& [lists, other] : {std::pair(&of_x, &b), std::pair(&of_y, &a)})
    for (const Json* list : *lists) {
      bool all = true;
      for (const Json& branch : *list) {
        REDLINE_ASSIGN(const bool disjoint, are_disjoint(branch, *other, depth + 1));
        all = all && disjoint;
        if (!all) break;
      }
      if (all) return true;
    }
  const auto any_false = [](const Schemas& s) {
    return std::any_of(s.begin(), s.end(), [](const Json* i) { return i->is_boolean(); });
  };
  if (any_false(x) || any_false(y)) return true;
  REDLINE_ASSIGN(const auto values_x, values_of(x));
  REDLINE_ASSIGN(const auto values_y, values_of(y));
  for (const auto& [values, other] : {std::pair(&values_x, &b), std::pair(&values_y, &a)})
    if (*values) {
      for (const Json* value : **values) {
        REDLINE_ASSIGN(const bool matches, validates(*value, *other));
        if (matches) return false;
      }
      return true;
    }
  const uint8_t both = types_of(x) & types_of(y);
  if (both == 0) return true;
  if ((both & ~kNumber) == 0) {
    NumberRange range;
    for (const Schemas* s : {&x, &y})
      for (const Json* schema : *s) bound(*schema, range);
    if (range.least && range.greatest) {
      const int order = range.least->compare(*range.greatest);
      return order > 0 || (order == 0 && (range.excludes_least || range.excludes_greatest));
    }
    return false;
  }
  if (both == kString) {
    Schemas all = x;
    all.insert(all.end(), y.begin(), y.end());
    REDLINE_ASSIGN(const auto language, string_language(all, RegexSyntax::Reading::kLoose));
    return language && language->is_empty();
  }
  return both == kObject ? are_disjoint_objects(x, y, depth) : Result<bool>(false);
}

Result<bool> SchemaValues::are_disjoint_objects(const Schemas& x, const Schemas& y, int depth) {
  std::set<std::string> required_x, required_y;
  for (const auto& [s, required] : {std::pair(&x, &required_x), std::pair(&y, &required_y)})
    for (const Json* schema : *s)
      if (const Json* names = find(*schema, "required"))
        for (const Json& name : *names) required->insert(name.get<std::string>());
  const auto property = [](const Schemas& s, const std::string& name) -> const Json* {
    for (const Json* schema : s)
      if (const Json* properties = find(*schema, "properties"))
        if (const Json* found = find(*properties, name.c_str())) return found;
    return nullptr;
  };
  const auto closes = [&](const Schemas& s, const std::string& name) {  // forbids the name
    for (const Json* schema : s) {
      const Json* more = find(*schema, "additionalProperties");
      const Json* properties = find(*schema, "properties");
      if (more && more->is_boolean() && !more->get<bool>() && !schema->contains("patternProperties") &&
          !(properties && properties->contains(name)))
        return true;
    }
    return false;
  };
  for (const std::string& name : required_x) {
    if (closes(y, name)) return true;
    const Json *in_x = property(x, name), *in_y = property(y, name);
    if (!in_x || !in_y || !required_y.contains(name)) continue;
    REDLINE_ASSIGN(const bool disjoint, are_disjoint(*in_x, *in_y, depth + 1));
    if (disjoint) return true;
  }
  for (const std::string& name : required_y)
    if (closes(x, name)) return true;
  return false;
}

Result<ByteDfa> SchemaValues::search_language(const Json& schema, std::string_view keyword, const std::string& pattern,
                                              RegexSyntax::Reading reading) {
  const auto key = std::pair(pattern, reading);
  if (const auto found = languages_.find(key); found != languages_.end()) return found->second;
  const auto within = [&](const Status& s) {
    return Status(s.code(), fmt::format("JSON schema: {}: {}: {}", document_.place(schema), keyword, s.message()));
  };
  const Result<RegexSyntax> syntax = RegexSyntax::parse(pattern);
  if (!syntax.ok()) return within(syntax.status());
  Grammar own;
  Result<ByteDfa> dfa = ByteDfa::from(own, syntax->search(own, reading), document_.deadline());
  if (!dfa.ok()) return within(dfa.status());
  languages_.emplace(key, *dfa);
  return dfa;
}

Result<std::optional<ByteDfa>> SchemaValues::string_language(const Schemas& schemas, RegexSyntax::Reading reading,
                                                             const std::set<const Json*>& without) {
  std::optional<ByteDfa> language;
  for (const Json* schema : schemas)
    for (const char* keyword : {"pattern", "format"}) {
      const Json* value = schema->is_object() ? find(*schema, keyword) : nullptr;
      if (!value || without.contains(value)) continue;
      const std::string& text = value->get_ref<const std::string&>();
      const std::string pattern(keyword[0] == 'f' ? format_pattern(text) : text);
      REDLINE_ASSIGN(ByteDfa own, search_language(*schema, keyword, pattern, reading));
      if (language) {
        REDLINE_ASSIGN(own, ByteDfa::intersect(*language, own, document_.deadline()));
      }
      language = std::move(own);
    }
  return language;
}

}  // namespace redline::json_schema
