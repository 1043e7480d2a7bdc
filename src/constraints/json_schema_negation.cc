#include "constraints/json_schema_negation.h"

#include "constraints/json_string.h"

namespace redline::json_schema {

/// Builds the complement of a schema by De Morgan's laws: one alternative for each keyword, or for each name or item in
/// it.
class SchemaNegations::Builder {
 public:
  Builder(SchemaDocument& document, const Json& schema) : document_(document), schema_(schema) {}

  Result<Negation> build() {
    REDLINE_TRY(document_.check(schema_));
    REDLINE_ASSIGN(const Json* target, document_.target_of(schema_));
    if (target) add(negated(*target));
    if (!target || !document_.ref_hides_siblings() || !schema_.contains("$ref"))
      for (const auto& [key, value] : schema_.items()) add_keyword(key, value);
    Negation negation;
    negation.lost = lost_;
    negation.num_alternatives = alternatives_.size();
    if (!alternatives_.empty()) negation.schema = document_.own({{"anyOf", std::move(alternatives_)}}, schema_);
    else if (lost_.empty()) negation.schema = document_.own(false, schema_);
    return negation;
  }

 private:
  void add(Json alternative) { alternatives_.push_back(std::move(alternative)); }
  Json negated(const Json& schema) {
    return schema.is_boolean() ? Json(!schema.get<bool>()) : Json{{"not", document_.at(schema)}};
  }
  static bool is_true(const Json& schema) {
    return (schema.is_boolean() && schema.get<bool>()) || (schema.is_object() && schema.empty());
  }
  /// Adds the alternative of a value of these types with one more keyword.
  void add(uint8_t types, const char* keyword, Json value) { add({{kOwnTypes, types}, {keyword, std::move(value)}}); }

  void add_keyword(const std::string& key, const Json& value) {
    if (add_of_value(key, value) || add_of_array(key, value) || add_of_object(key, value)) return;
    if (key == "not") add(document_.at(value));
    if (key == "allOf")
      for (const Json& branch : value) add(negated(branch));
    if (key == "anyOf" || key == "oneOf") {
      Json none = Json::array();
      for (const Json& branch : value) none.push_back(negated(branch));
      add({{"allOf", std::move(none)}});
      constexpr size_t kMaxBranches = 4;
      if (key == "oneOf" && value.size() > kMaxBranches) lost_ = key;
      for (size_t i = 0; key == "oneOf" && value.size() <= kMaxBranches && i < value.size(); ++i)
        for (size_t j = i + 1; j < value.size(); ++j)
          add({{"allOf", Json::array({document_.at(value[i]), document_.at(value[j])})}});
    }
    if (key == "if") {
      if (const Json* then = find(schema_, "then"))
        add({{"allOf", Json::array({document_.at(value), negated(*then)})}});
      if (const Json* otherwise = find(schema_, "else"))
        add({{"allOf", Json::array({negated(value), negated(*otherwise)})}});
    }
  }

  bool add_of_value(const std::string& key, const Json& value) {
    const auto is_strict = [&](const char* other) {
      const Json* v = find(schema_, other);
      return v && v->is_boolean() && v->get<bool>();
    };
    if (key == "type" || key == kOwnTypes) {
      // `type` and kOwnTypes together are one alternative.
      const uint8_t others = kAllTypes & ~types_of({&schema_});
      if (others != 0 && (key == kOwnTypes || !schema_.contains(kOwnTypes))) add({{kOwnTypes, others}});
    } else if (key == "const") {
      add({{kNotEnum, Json::array({value})}});
    } else if (key == "enum") {
      add({{kNotEnum, value}});
    } else if (key == kNotEnum) {
      add({{"enum", value}});
    } else if (key == "minimum") {
      add(kNumber, is_strict("exclusiveMinimum") ? "maximum" : "exclusiveMaximum", value);
    } else if (key == "maximum") {
      add(kNumber, is_strict("exclusiveMaximum") ? "minimum" : "exclusiveMinimum", value);
    } else if (key == "exclusiveMinimum") {
      if (value.is_number()) add(kNumber, "maximum", value);
    } else if (key == "exclusiveMaximum") {
      if (value.is_number()) add(kNumber, "minimum", value);
    } else if (key == "multipleOf") {
      add(kNumber, kNotMultipleOf, value);
    } else if (key == kNotMultipleOf) {
      add(kNumber, "multipleOf", value);
    } else if (key == "pattern") {
      add(kString, kNotPattern, value);
    } else if (key == kNotPattern) {
      add(kString, "pattern", value);
    } else if (key == "format") {
      if (!format_pattern(value.get_ref<const std::string&>()).empty()) lost_ = key;
    } else {
      return add_of_length(key, value, "minLength", "maxLength", kString) ||
             add_of_length(key, value, "minItems", "maxItems", kArray) ||
             add_of_length(key, value, "minProperties", "maxProperties", kObject);
    }
    return true;
  }

  bool add_of_length(const std::string& key, const Json& value, const char* min_key, const char* max_key,
                     uint8_t types) {
    if (key != min_key && key != max_key) return false;
    const uint32_t count = count_of(value);
    if (key == min_key && count > 0) add(types, max_key, count - 1);
    if (key == max_key && count < kUnbounded - 1) add(types, min_key, count + 1);
    return true;
  }

  bool add_of_array(const std::string& key, const Json& value) {
    if (key == "uniqueItems") {
      if (value.get<bool>()) lost_ = key;
    } else if (key == "prefixItems" || (key == "items" && value.is_array())) {
      for (size_t i = 0; i < value.size(); ++i) {
        if (is_true(value[i])) continue;
        Json items = Json::array();
        for (size_t j = 0; j < i; ++j) items.push_back(true);
        items.push_back(negated(value[i]));
        add({{kOwnTypes, kArray}, {"minItems", i + 1}, {"prefixItems", std::move(items)}});
      }
    } else if (key == "items" || (key == "additionalItems" && rest_of(schema_) == &value)) {
      const size_t prefix = prefix_of(schema_);
      if (is_true(value)) return true;
      if (value.is_boolean()) add(kArray, "minItems", prefix + 1);
      else if (prefix == 0) add(kArray, "contains", negated(value));
      else lost_ = key;
    } else if (key == "contains") {
      const Json *least = find(schema_, "minContains"), *greatest = find(schema_, "maxContains");
      const uint32_t at_least = least ? count_of(*least) : 1;
      if (at_least == 1) add(kArray, "items", negated(value));
      else if (at_least > 1)
        add({{kOwnTypes, kArray},
             {"contains", document_.at(value)},
             {"minContains", 0},
             {"maxContains", at_least - 1}});
      if (greatest && count_of(*greatest) < kUnbounded - 1)
        add({{kOwnTypes, kArray}, {"contains", document_.at(value)}, {"minContains", count_of(*greatest) + 1}});
    } else if (key == "unevaluatedItems") {
      if (!is_true(value)) lost_ = key;
    } else {
      return false;
    }
    return true;
  }

  bool add_of_object(const std::string& key, const Json& value) {
    const auto has_without = [&](const std::string& name, const Json& absent) {
      add({{kOwnTypes, kObject}, {"required", Json::array({name})}, {kAbsent, Json::array({absent})}});
    };
    if (key == "required") {
      for (size_t i = 0; value.is_array() && i < value.size(); ++i) add(kObject, kAbsent, Json::array({value[i]}));
    } else if (key == kAbsent) {
      for (const Json& name : value) add(kObject, "required", Json::array({name}));
    } else if (key == "properties" || key == kMembers) {
      for (const auto& [name, schema] : value.items())
        if (!is_true(schema))
          add({{kOwnTypes, kObject}, {"required", Json::array({name})}, {kMembers, {{name, negated(schema)}}}});
    } else if (key == "dependentRequired" || key == "dependentSchemas" || key == "dependencies") {
      for (const auto& [name, needed] : value.items()) {
        if (needed.is_string()) has_without(name, needed);
        for (size_t i = 0; needed.is_array() && i < needed.size(); ++i) has_without(name, needed[i]);
        if (!needed.is_string() && !needed.is_array())
          add({{kOwnTypes, kObject}, {"required", Json::array({name})}, {"allOf", Json::array({negated(needed)})}});
      }
    } else if (key == "patternProperties" || key == "additionalProperties" || key == "propertyNames" ||
               key == "unevaluatedProperties") {
      if (!is_true(value)) lost_ = key;
    } else {
      return false;
    }
    return true;
  }

  SchemaDocument& document_;
  const Json& schema_;
  Json alternatives_ = Json::array();
  std::string lost_;
};

Result<Negation> SchemaNegations::of(const Json& schema) {
  if (const auto found = known_.find(&schema); found != known_.end()) return found->second;
  if (schema.is_object() && schema.contains(kAt)) {
    REDLINE_ASSIGN(const Json* target, document_.target_of(schema));
    return of(*target);
  }
  Negation negation;
  if (schema.is_boolean()) {
    negation.schema = document_.own(!schema.get<bool>(), schema);
  } else {
    REDLINE_ASSIGN(negation, Builder(document_, schema).build());
  }
  known_.emplace(&schema, negation);
  return negation;
}

}  // namespace redline::json_schema
