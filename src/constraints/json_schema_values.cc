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

bool combines_schemas(const Json& schema) {
  for (const char* key :
       {"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "contains"})
    if (schema.contains(key)) return true;
  return false;
}

}  // namespace

Result<bool> SchemaValues::validates(const Json& value, const Json& schema, size_t depth) {
  REDLINE_TRY(document_.deadline().check());
  if (depth > 2 * kMaxSchemaDepth) return document_.wrong(schema, "$ref", "refers to itself without end");
  if (schema.is_boolean()) return schema.get<bool>();
  REDLINE_TRY(document_.check(schema));
  REDLINE_ASSIGN(const Json* target, document_.target_of(schema));
  if (target) {
    REDLINE_ASSIGN(const bool valid, validates(value, *target, depth + 1));
    if (!valid || (document_.ref_hides_siblings() && schema.contains("$ref"))) return valid;
  }
  if (!(types_of({&schema}) & type_of(value))) return false;
  REDLINE_ASSIGN(const bool is_combined, validates_combined(value, schema, depth));
  if (!is_combined) return false;
  if (const Json* one = find(schema, "const"); one && !equals(*one, value)) return false;
  const auto is_among = [&](const Json& list) {
    // A value that is an element of the list itself needs no search, which would take n^2 steps for a list of n values.
    const bool is_own = !list.empty() && !std::less<>()(&value, &list.front()) && !std::less<>()(&list.back(), &value);
    return is_own || std::any_of(list.begin(), list.end(), [&](const Json& v) { return equals(v, value); });
  };
  if (const Json* list = find(schema, "enum"); list && !is_among(*list)) return false;
  if (const Json* list = find(schema, kNotEnum); list && is_among(*list)) return false;
  if (value.is_number()) return validates_number(value, schema);
  if (value.is_array()) return validates_array(value, schema, depth);
  if (value.is_object()) return validates_object(value, schema, depth);
  if (!value.is_string()) return true;
  const std::string& text = value.get_ref<const std::string&>();
  if (!has_length(schema, "minLength", "maxLength", count_chars(text))) return false;
  REDLINE_ASSIGN(const auto language, string_language({&schema}, reading_));
  return !language || language->matches(text);
}

// Checks a value against allOf, anyOf, oneOf, not and if.
Result<bool> SchemaValues::validates_combined(const Json& value, const Json& schema, size_t depth) {
  using Reading = RegexSyntax::Reading;
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
  const auto may_match = [&](const Json& other) {
    const Reading before = reading_;
    reading_ = before == Reading::kStrict ? Reading::kLoose : Reading::kStrict;
    Result<bool> valid = validates(value, other, depth + 1);
    reading_ = before;
    return valid;
  };
  if (const Json* other = find(schema, "not")) {
    REDLINE_ASSIGN(const bool valid, may_match(*other));
    if (valid) return false;
  }
  const Json* condition = find(schema, "if");
  if (!condition) return true;
  REDLINE_ASSIGN(const bool holds, validates(value, *condition, depth + 1));
  const Json* then = find(schema, holds ? "then" : "else");
  return then ? validates(value, *then, depth + 1) : Result<bool>(true);
}

Result<bool> SchemaValues::validates_number(const Json& value, const Json& schema) const {
  const auto number = decimal_of(value);
  if (!number) return false;
  NumberRange range;
  bound(schema, range);
  if (range.least && number->compare(*range.least) < (range.excludes_least ? 1 : 0)) return false;
  if (range.greatest && number->compare(*range.greatest) > (range.excludes_greatest ? -1 : 0)) return false;
  for (const char* key : {"multipleOf", kNotMultipleOf}) {
    const Json* v = find(schema, key);
    if (!v) continue;
    // Both numbers become integers: they are multiplied by 10^scale.
    const Decimal divisor = *decimal_of(*v);
    const size_t scale = std::max(divisor.fraction.size(), number->fraction.size());
    const std::string by = divisor.whole + divisor.fraction + std::string(scale - divisor.fraction.size(), '0');
    constexpr size_t kMaxDivisorDigits = 17;  // ten times a remainder fits 64 bits
    if (by.size() > kMaxDivisorDigits) return document_.refused(schema, "multipleOf", "with so many digits is");
    const uint64_t whole = std::stoull(by);
    uint64_t rest = 0;
    for (const char digit : number->whole + number->fraction + std::string(scale - number->fraction.size(), '0'))
      rest = (rest * 10 + static_cast<uint64_t>(digit - '0')) % whole;
    if ((rest == 0) != (key[0] == 'm')) return false;
  }
  return true;
}

Result<bool> SchemaValues::validates_array(const Json& value, const Json& schema, size_t depth) {
  if (!has_length(schema, "minItems", "maxItems", value.size())) return false;
  const Json* unique = find(schema, "uniqueItems");
  const Json* unevaluated = find(schema, "unevaluatedItems");
  if (unevaluated && combines_schemas(schema))
    return document_.refused(schema, "unevaluatedItems", "with values of enum and combined schemas is");
  const Json* contained = find(schema, "contains");
  uint32_t matches = 0;
  for (size_t i = 0; i < value.size(); ++i) {
    for (size_t j = 0; unique && unique->get<bool>() && j < i; ++j)
      if (equals(value[i], value[j])) return false;
    const Json* item = items_at(schema, i);
    if (!item) item = unevaluated;
    if (item) {
      REDLINE_ASSIGN(const bool valid, validates(value[i], *item, depth + 1));
      if (!valid) return false;
    }
    if (contained) {
      REDLINE_ASSIGN(const bool valid, validates(value[i], *contained, depth + 1));
      matches += valid;
    }
  }
  if (!contained) return true;
  const Json *least = find(schema, "minContains"), *greatest = find(schema, "maxContains");
  return matches >= (least ? count_of(*least) : 1) && (!greatest || matches <= count_of(*greatest));
}

Result<bool> SchemaValues::validates_object(const Json& value, const Json& schema, size_t depth) {
  if (!has_length(schema, "minProperties", "maxProperties", value.size())) return false;
  if (const Json* names = find(schema, "required"); names && names->is_array())
    for (const Json& name : *names)
      if (!value.contains(name.get<std::string>())) return false;
  if (const Json* names = find(schema, kAbsent))
    for (const Json& name : *names)
      if (value.contains(name.get<std::string>())) return false;
  if (schema.contains("unevaluatedProperties") && combines_schemas(schema))
    return document_.refused(schema, "unevaluatedProperties", "with values of enum and combined schemas is");
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"})
    if (const Json* dependencies = find(schema, key))
      for (const auto& [name, needed] : dependencies->items()) {
        if (!value.contains(name)) continue;
        if (needed.is_string() && !value.contains(needed.get<std::string>())) return false;
        for (size_t i = 0; needed.is_array() && i < needed.size(); ++i)
          if (!value.contains(needed[i].get<std::string>())) return false;
        if (needed.is_string() || needed.is_array()) continue;
        REDLINE_ASSIGN(const bool valid, validates(value, needed, depth + 1));
        if (!valid) return false;
      }
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
      REDLINE_ASSIGN(const ByteDfa language, search_language(schema, "patternProperties", pattern, reading_));
      if (language.matches(key)) of_value.push_back(&own);
    }
  const Json* more = find(schema, "additionalProperties");
  if (!more) more = find(schema, "unevaluatedProperties");
  if (more && of_value.empty()) of_value.push_back(more);
  if (const Json* members = find(schema, kMembers))
    if (const Json* own = find(*members, key.c_str())) of_value.push_back(own);
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
    if (!values) values = own;  // further lists are checked below, with the other keywords
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
  for (const Json* schema : y)  // a schema and its complement are disjoint
    if (const Json* other = schema->is_object() ? find(*schema, "not") : nullptr) {
      REDLINE_ASSIGN(const Json* target, document_.target_of(*other));
      if (other == &a || target == &a) return true;
    }
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
  Result<ByteDfa> dfa = syntax->search(document_.deadline(), reading);
  if (!dfa.ok()) return within(dfa.status());
  languages_.emplace(key, *dfa);
  return dfa;
}

Result<std::optional<ByteDfa>> SchemaValues::string_language(const Schemas& schemas, RegexSyntax::Reading reading,
                                                             const std::set<const Json*>& without) {
  std::optional<ByteDfa> language;
  for (const Json* schema : schemas)
    for (const char* keyword : {"pattern", "format", kNotPattern}) {
      const Json* value = schema->is_object() ? find(*schema, keyword) : nullptr;
      if (!value || without.contains(value)) continue;
      const std::string& text = value->get_ref<const std::string&>();
      const bool is_format = keyword[0] == 'f', is_excluded = keyword == kNotPattern;
      if (is_format && format_pattern(text).empty()) continue;
      const auto opposite =
          reading == RegexSyntax::Reading::kStrict ? RegexSyntax::Reading::kLoose : RegexSyntax::Reading::kStrict;
      REDLINE_ASSIGN(ByteDfa own, search_language(*schema, is_excluded ? "pattern" : keyword,
                                                  is_format ? std::string(format_pattern(text)) : text,
                                                  is_excluded ? opposite : reading));
      if (is_excluded) {
        REDLINE_ASSIGN(const ByteDfa all, all_strings());
        REDLINE_ASSIGN(own, ByteDfa::intersect(all, own.complement(), document_.deadline()));
      }
      if (language) {
        REDLINE_ASSIGN(own, ByteDfa::intersect(*language, own, document_.deadline()));
      }
      language = std::move(own);
    }
  return language;
}

Result<ByteDfa> SchemaValues::all_strings() {
  Grammar own;
  return ByteDfa::from(own, own.repeat(own.chars({{0, kMaxChar}}), 0, kUnbounded), document_.deadline());
}

Result<ByteDfa> SchemaValues::strings_of(const Json& schema, RegexSyntax::Reading reading,
                                         const std::set<const Json*>& counted, size_t depth) {
  using Reading = RegexSyntax::Reading;
  CompileDeadline& deadline = document_.deadline();
  REDLINE_TRY(deadline.check());
  if (depth > kMaxSchemaDepth) return document_.wrong(schema, "$ref", "refers to itself without end");
  Grammar own;
  if (schema.is_boolean()) return schema.get<bool>() ? all_strings() : ByteDfa::from(own, own.nothing(), deadline);
  REDLINE_TRY(document_.check(schema));
  if (!(types_of({&schema}) & kString)) return ByteDfa::from(own, own.nothing(), deadline);
  REDLINE_ASSIGN(ByteDfa found, all_strings());
  const auto keep = [&](const ByteDfa& other) -> Status {
    REDLINE_ASSIGN(found, ByteDfa::intersect(found, other, deadline));
    return {};
  };
  REDLINE_ASSIGN(const Json* target, document_.target_of(schema));
  if (target) {
    REDLINE_ASSIGN(const ByteDfa strings, strings_of(*target, reading, counted, depth + 1));
    if (document_.ref_hides_siblings() && schema.contains("$ref")) return strings;
    REDLINE_TRY(keep(strings));
  }
  const Reading opposite = reading == Reading::kStrict ? Reading::kLoose : Reading::kStrict;
  if (const Json* all = find(schema, "allOf"))
    for (const Json& branch : *all) {
      REDLINE_ASSIGN(const ByteDfa strings, strings_of(branch, reading, counted, depth + 1));
      REDLINE_TRY(keep(strings));
    }
  for (const char* key : {"anyOf", "oneOf"})
    if (const Json* list = find(schema, key)) {
      // `none` is the set of strings that match no branch; its complement is kept. A branch of oneOf excludes the other
      // branches.
      REDLINE_ASSIGN(ByteDfa none, all_strings());
      for (const Json& branch : *list) {
        REDLINE_ASSIGN(ByteDfa strings, strings_of(branch, reading, {}, depth + 1));
        for (const Json& other : key[0] == 'o' ? *list : Json::array()) {
          if (&other == &branch) continue;
          REDLINE_ASSIGN(const ByteDfa others, strings_of(other, opposite, {}, depth + 1));
          REDLINE_ASSIGN(strings, ByteDfa::intersect(strings, others.complement(), deadline));
        }
        REDLINE_ASSIGN(none, ByteDfa::intersect(none, strings.complement(), deadline));
      }
      REDLINE_TRY(keep(none.complement()));
    }
  if (const Json* other = find(schema, "not")) {
    REDLINE_ASSIGN(const ByteDfa strings, strings_of(*other, opposite, {}, depth + 1));
    REDLINE_TRY(keep(strings.complement()));
  }
  if (schema.contains("if")) return document_.refused(schema, "if", "for the names of members is");
  const auto texts_of = [&](const Json& list) {
    std::vector<std::string> texts;
    for (const Json& value : list)
      if (value.is_string()) texts.push_back(value.get<std::string>());
    return ByteDfa::from(own, own.choice_of_texts(std::move(texts)), deadline);
  };
  for (const char* key : {"enum", "const", kNotEnum})
    if (const Json* values = find(schema, key)) {
      REDLINE_ASSIGN(const ByteDfa texts, texts_of(key[0] == 'c' ? Json::array({*values}) : *values));
      REDLINE_TRY(keep(key == kNotEnum ? texts.complement() : texts));
    }
  // The engine's expression for a format is narrower than the format, so a loose reading leaves the format out.
  std::set<const Json*> without;
  if (const Json* format = find(schema, "format"); format && reading == Reading::kLoose) without.insert(format);
  REDLINE_ASSIGN(const auto language, string_language({&schema}, reading, without));
  if (language) REDLINE_TRY(keep(*language));
  uint32_t least = 0, greatest = kUnbounded;
  if (!counted.contains(&schema)) bound_length({&schema}, "minLength", "maxLength", least, greatest);
  constexpr uint32_t kMaxLength = 1000;
  if (least > kMaxLength || (greatest != kUnbounded && greatest > kMaxLength))
    return document_.refused(schema, "maxLength", fmt::format("above {} for the names of members is", kMaxLength));
  if (least > 0 || greatest != kUnbounded) {
    REDLINE_ASSIGN(const ByteDfa lengths,
                   ByteDfa::from(own, own.repeat(own.chars({{0, kMaxChar}}), least, greatest), deadline));
    REDLINE_TRY(keep(lengths));
  }
  return found;
}

}  // namespace redline::json_schema
