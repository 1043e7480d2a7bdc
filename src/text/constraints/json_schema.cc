// A JSON Schema as a grammar; over 600 lines: the keywords of a schema refer to each other, and one class holds the
// tables that they share.
#include "text/constraints/json_schema.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/text_distance.h"
#include "text/constraints/json_number.h"
#include "text/constraints/json_string.h"
#include "text/constraints/regex_syntax.h"
#include "text/unicode.h"

namespace redline {
namespace {

using Json = nlohmann::ordered_json;
using Schemas = std::vector<const Json*>;  // all of them hold

constexpr uint32_t kUnbounded = Grammar::kUnbounded;
constexpr size_t kMaxSchemaDepth = 128;  // of the schema's text
constexpr size_t kMaxPatterns = 4, kMaxUniqueValues = 8, kMaxDivisor = 1000, kMaxRules = 20'000;

enum Types : uint8_t { kNull = 1, kBoolean = 2, kInteger = 4, kFraction = 8, kString = 16, kArray = 32, kObject = 64 };
constexpr uint8_t kNumber = kInteger | kFraction, kAllTypes = 127;

const std::vector<std::string_view> kTypeNames = {"null", "boolean", "integer", "number", "string", "array", "object"};

uint8_t type_named(std::string_view name) {
  constexpr std::pair<std::string_view, uint8_t> kNames[] = {
      {"null", kNull},     {"boolean", kBoolean}, {"integer", kInteger}, {"number", kNumber},
      {"string", kString}, {"array", kArray},     {"object", kObject}};
  for (const auto& [known, bits] : kNames)
    if (known == name) return bits;
  return 0;
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

const Json* find(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

// Annotations, which say nothing about a value, and containers of schemas that are only used by reference.
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

class SchemaCompiler {
 public:
  SchemaCompiler(Grammar& grammar, const Json& root, const JsonSchemaOptions& options, CompileDeadline& deadline)
      : root_(root), options_(options), deadline_(deadline), g_(grammar) {}

  /// The values of `schema`, which is part of the root.
  Result<Grammar::Rule> compile(const Json& schema) {
    REDLINE_TRY(name_places());
    const Json* draft = root_.is_object() ? find(root_, "$schema") : nullptr;
    if (draft && draft->is_string()) {
      const std::string& name = draft->get_ref<const std::string&>();
      for (const char* old : {"draft-03", "draft-04", "draft-06", "draft-07"})
        if (name.find(old) != std::string::npos) ref_hides_siblings_ = true;
    }
    REDLINE_ASSIGN(const Grammar::Rule root, rule_for({&schema}));
    while (!pending_.empty()) {
      const auto [rule, schemas] = std::move(pending_.back());
      pending_.pop_back();
      REDLINE_ASSIGN(const Grammar::Expr body, cases(schemas, {}, 0));
      g_.define(rule, body);
    }
    return root;
  }

 private:
  // Errors ---------------------------------------------------------------------------------------------------------

  // The JSON pointer of every value, and anchors.
  Status name_places() {
    std::vector<std::tuple<const Json*, std::string, size_t>> work = {{&root_, "", 0}};
    while (!work.empty()) {
      auto [value, pointer, depth] = std::move(work.back());
      work.pop_back();
      REDLINE_TRY(deadline_.check());
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
  std::string place(const Json& value) const {
    const auto found = places_.find(&value);
    return found == places_.end() || found->second.empty() ? "the root" : found->second;
  }
  Status wrong(const Json& schema, std::string_view keyword, std::string_view what) const {
    return invalid_argument("JSON schema: {}: {}: {}", place(schema), keyword, what);
  }
  Status refused(const Json& schema, std::string_view keyword, std::string_view what = "is") const {
    return unsupported("JSON schema: {}: {} {} not supported", place(schema), keyword, what);
  }

  // Keywords -------------------------------------------------------------------------------------------------------

  // Checks the keywords and the types of their values, once per schema.
  Status check(const Json& schema) {
    if (schema.is_boolean() || !checked_.insert(&schema).second) return {};
    if (!schema.is_object())
      return invalid_argument("JSON schema: {}: a schema is an object, true or false", place(schema));
    if (ref_hides_siblings_ && schema.contains("$ref")) return check_ref(schema);
    const bool combines = [&] {
      for (const char* key : {"$ref", "allOf", "anyOf", "oneOf", "if"})
        if (schema.contains(key)) return true;
      return false;
    }();
    for (const auto& [key, value] : schema.items()) {
      const std::string_view k = key;
      const auto require = [&, &keyword = key](bool holds, const char* what) {
        return holds ? Status() : wrong(schema, keyword, what);
      };
      if (kAnnotations.contains(k) || k.starts_with("x-")) continue;
      if (k == "unevaluatedProperties" || k == "unevaluatedItems") {
        if (combines) return refused(schema, key, "beside $ref, allOf, anyOf or oneOf is");
        if (k == "unevaluatedProperties" && schema.contains("additionalProperties")) continue;
        if (k == "unevaluatedItems" && schema.contains("items")) continue;
        REDLINE_TRY(require(value.is_object() || value.is_boolean(), "must be a schema"));
        continue;
      }
      if (!kEnforced.contains(k)) return refused(schema, key);
      if (k == "type") {
        REDLINE_TRY(require(value.is_string() || value.is_array(), "must be a name or a list of names"));
        const auto check_name = [&, &keyword = key](const Json& name) -> Status {
          if (name.is_string() && type_named(name.get<std::string>()) != 0) return {};
          return wrong(schema, keyword,
                       fmt::format("names an unknown type, {}{}", name.dump(),
                                   name.is_string() ? did_you_mean(name.get<std::string>(), kTypeNames) : ""));
        };
        if (value.is_string()) REDLINE_TRY(check_name(value));
        else
          for (const Json& name : value) REDLINE_TRY(check_name(name));
      } else if (k == "enum" || k == "required" || k == "anyOf" || k == "oneOf" || k == "allOf" || k == "prefixItems") {
        REDLINE_TRY(require(value.is_array(), "must be an array"));
        if (k == "required")
          for (const Json& name : value) REDLINE_TRY(require(name.is_string(), "must be an array of names"));
      } else if (k == "properties" || k == "patternProperties") {
        REDLINE_TRY(require(value.is_object(), "must be an object"));
      } else if (k == "minProperties" || k == "maxProperties" || k == "minItems" || k == "maxItems" ||
                 k == "minLength" || k == "maxLength") {
        REDLINE_TRY(require(value.is_number() && is_integral(value) && value.get<double>() >= 0,
                            "must be an integer, 0 or more"));
      } else if (k == "minimum" || k == "maximum" || k == "exclusiveMinimum" || k == "exclusiveMaximum" ||
                 k == "multipleOf") {
        REDLINE_TRY(require(value.is_number(), "must be a number"));
        if (!decimal_of(value)) return refused(schema, key, "with more than 40 digits is");
        if (k == "multipleOf") {
          const Decimal divisor = *decimal_of(value);
          REDLINE_TRY(require(!divisor.negative && !divisor.is_zero(), "must be more than 0"));
          if (!divisor.is_integer() || divisor.whole.size() > 4 || std::stoul(divisor.whole) > kMaxDivisor)
            return refused(schema, key, "other than an integer up to 1000 is");
        }
      } else if (k == "uniqueItems") {
        REDLINE_TRY(require(value.is_boolean(), "must be true or false"));
      } else if (k == "nullable") {
        REDLINE_TRY(require(value.is_boolean(), "must be true or false"));
        if (value.get<bool>()) return refused(schema, key, "(write a list of types with \"null\") is");
      } else if (k == "pattern") {
        REDLINE_TRY(require(value.is_string(), "must be a regular expression"));
      } else if (k == "format") {
        REDLINE_TRY(require(value.is_string(), "must be a name"));
        const std::string& name = value.get_ref<const std::string&>();
        if (format_pattern(name).empty())
          return refused(schema, key, fmt::format("\"{}\" (there are {}) is", repair_utf8(name), known_formats()));
      } else if (k == "$ref") {
        REDLINE_TRY(check_ref(schema));
      } else if (k != "const") {
        REDLINE_TRY(
            require(value.is_object() || value.is_boolean() || (k == "items" && value.is_array()), "must be a schema"));
      }
    }
    return {};
  }
  Status check_ref(const Json& schema) const {
    if (!find(schema, "$ref")->is_string()) return wrong(schema, "$ref", "must be a reference");
    return {};
  }

  Result<const Json*> resolve(const Json& schema) const {
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
    const Json* at = &root_;
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

  static std::optional<Decimal> decimal_of(const Json& value) {
    return Decimal::from(value.is_number_float() ? fmt::format("{}", value.get<double>()) : value.dump());
  }
  static uint32_t count_of(const Json& value) {
    const double count = value.get<double>();
    return count >= kUnbounded ? kUnbounded : static_cast<uint32_t>(count);
  }

  // Conjunctions ---------------------------------------------------------------------------------------------------

  // One rule per set of schemas that hold together.
  Result<Grammar::Rule> rule_for(Schemas schemas) {
    REDLINE_TRY(deadline_.check());
    std::erase_if(schemas,
                  [](const Json* s) { return (s->is_boolean() && s->get<bool>()) || (s->is_object() && s->empty()); });
    std::sort(schemas.begin(), schemas.end());
    schemas.erase(std::unique(schemas.begin(), schemas.end()), schemas.end());
    const auto [found, is_new] = rules_.try_emplace(schemas, 0);
    if (!is_new) return found->second;
    if (rules_.size() > kMaxRules)
      return invalid_argument("JSON schema: it takes more than {} combinations of schemas", kMaxRules);
    found->second = g_.add_rule(schemas.empty() ? "any value" : place(*schemas[0]));
    pending_.push_back({found->second, schemas});
    return found->second;
  }
  Result<Grammar::Expr> value_of(Schemas schemas) {
    REDLINE_ASSIGN(const Grammar::Rule rule, rule_for(std::move(schemas)));
    return g_.call(rule);
  }

  // Adds what allOf and $ref lead to, in order; the lists of anyOf and oneOf among them.
  Status flatten(Schemas& schemas, std::vector<const Json*>& alternatives) {
    std::set<const Json*> seen;
    Schemas flat;
    std::vector<const Json*> work(schemas.rbegin(), schemas.rend());
    while (!work.empty()) {
      const Json* schema = work.back();
      work.pop_back();
      if (!seen.insert(schema).second) continue;
      REDLINE_TRY(deadline_.check());
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
        if (const Json* list = find(*schema, key)) {
          if (key[0] == 'o') REDLINE_TRY(check_exclusive(*schema, *list));
          if (std::find(alternatives.begin(), alternatives.end(), list) == alternatives.end())
            alternatives.push_back(list);
        }
    }
    schemas = std::move(flat);
    return {};
  }

  // The alternatives of anyOf and oneOf, one after the other; `chosen` lists have been decided.
  Result<Grammar::Expr> cases(Schemas schemas, std::set<const Json*> chosen, size_t depth) {
    REDLINE_TRY(deadline_.check());
    if (depth > kMaxSchemaDepth) return invalid_argument("JSON schema: anyOf and oneOf are nested too deep");
    std::vector<const Json*> alternatives;
    REDLINE_TRY(flatten(schemas, alternatives));
    std::erase_if(alternatives, [&](const Json* list) { return chosen.contains(list); });
    if (alternatives.empty()) return leaf(schemas);
    const Json* list = alternatives[0];
    chosen.insert(list);
    std::vector<Grammar::Expr> items;
    for (const Json& branch : *list) {
      Schemas with = schemas;
      with.push_back(&branch);
      if (++num_cases_ > kMaxRules)
        return invalid_argument("JSON schema: anyOf and oneOf have more than {} combinations", kMaxRules);
      REDLINE_ASSIGN(const Grammar::Expr item, cases(std::move(with), chosen, depth + 1));
      items.push_back(item);
    }
    return g_.choice(std::move(items));
  }

  // Whether no value can match both, as far as it is easily seen.
  Result<bool> are_disjoint(const Json& a, const Json& b, int depth) {
    Schemas x = {&a}, y = {&b};
    std::vector<const Json*> of_x, of_y;
    constexpr int kMaxNested = 6;
    if (depth > kMaxNested) return false;
    // oneOf below is looked at when its own schema is compiled.
    REDLINE_TRY(flatten_quietly(x, of_x));
    REDLINE_TRY(flatten_quietly(y, of_y));
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
          REDLINE_ASSIGN(const bool matches, validates(*value, *other, 0));
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
    if (both != kObject) return false;
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
  Status flatten_quietly(Schemas& schemas, std::vector<const Json*>& lists) {
    const bool was_quiet = std::exchange(is_comparing_, true);
    Status status = flatten(schemas, lists);
    is_comparing_ = was_quiet;
    return status;
  }
  Status check_exclusive(const Json& schema, const Json& list) {
    if (is_comparing_ || !exclusive_.insert(&list).second) return {};
    for (size_t i = 0; i < list.size(); ++i)
      for (size_t j = i + 1; j < list.size(); ++j) {
        REDLINE_ASSIGN(const bool disjoint, are_disjoint(list[i], list[j], 0));
        if (!disjoint)
          return refused(schema, "oneOf",
                         fmt::format("whose alternatives {} and {} may both match (use anyOf) is", i, j));
      }
    return {};
  }

  // Leaves: schemas without alternatives ----------------------------------------------------------------------------

  static uint8_t types_of(const Schemas& schemas) {
    uint8_t types = kAllTypes;
    for (const Json* schema : schemas) {
      const Json* type = schema->is_object() ? find(*schema, "type") : nullptr;
      if (!type) continue;
      uint8_t named = 0;
      if (type->is_string()) named = type_named(type->get<std::string>());
      else
        for (const Json& name : *type) named |= type_named(name.get<std::string>());
      types &= named;
    }
    return types;
  }

  // The values of enum and const; nullopt: there are none of these keywords.
  Result<std::optional<std::vector<const Json*>>> values_of(const Schemas& schemas) {
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
        REDLINE_ASSIGN(const bool valid, validates(*value, *schema, 0));
        holds = holds && valid;
      }
      if (holds) kept.push_back(value);
    }
    return std::optional(kept);
  }

  Result<Grammar::Expr> leaf(const Schemas& schemas) {
    for (const Json* schema : schemas)
      if (schema->is_boolean()) return g_.nothing();  // false
    REDLINE_ASSIGN(const auto values, values_of(schemas));
    if (values) {
      std::vector<std::string> texts;
      for (const Json* value : *values) texts.push_back(value->dump());
      return g_.choice_of_texts(std::move(texts));
    }
    const uint8_t types = types_of(schemas);
    std::vector<Grammar::Expr> items;
    if (types & kNull) items.push_back(g_.bytes("null"));
    if (types & kBoolean) items.push_back(g_.choice({g_.bytes("true"), g_.bytes("false")}));
    if (types & kInteger) {
      REDLINE_ASSIGN(const Grammar::Expr number, number_of(schemas, !(types & kFraction)));
      items.push_back(number);
    }
    if (types & kString) {
      REDLINE_ASSIGN(const Grammar::Expr text, string_of(schemas));
      items.push_back(text);
    }
    if (types & kArray) {
      REDLINE_ASSIGN(const Grammar::Expr array, array_of(schemas));
      items.push_back(array);
    }
    if (types & kObject) {
      REDLINE_ASSIGN(const Grammar::Expr object, object_of(schemas));
      items.push_back(object);
    }
    return g_.choice(std::move(items));
  }

  Grammar::Expr space() {
    if (!options_.allows_white_space) return g_.empty();
    constexpr uint32_t kMaxSpaces = 20;
    return g_.repeat(g_.chars({{' ', ' '}, {'\n', '\n'}, {'\t', '\t'}, {'\r', '\r'}}), 0, kMaxSpaces);
  }
  Grammar::Expr comma() { return g_.sequence({space(), g_.bytes(","), space()}); }

  static void bound(const Json& schema, NumberRange& range) {
    if (!schema.is_object()) return;
    if (const Json* v = find(schema, "minimum")) range.raise_least(*decimal_of(*v), false);
    if (const Json* v = find(schema, "exclusiveMinimum")) range.raise_least(*decimal_of(*v), true);
    if (const Json* v = find(schema, "maximum")) range.lower_greatest(*decimal_of(*v), false);
    if (const Json* v = find(schema, "exclusiveMaximum")) range.lower_greatest(*decimal_of(*v), true);
  }

  Result<Grammar::Expr> number_of(const Schemas& schemas, bool is_integer) {
    NumberRange range;
    range.is_integer = is_integer;
    uint64_t divisor = 1;
    const Json* divided = nullptr;
    for (const Json* schema : schemas) {
      bound(*schema, range);
      const Json* v = find(*schema, "multipleOf");
      if (!v) continue;
      divisor = std::lcm(divisor, std::stoull(decimal_of(*v)->whole));
      divided = schema;
      if (divisor > kMaxDivisor) return refused(*schema, "multipleOf", "with a common multiple above 1000 is");
    }
    if (divided) range.is_integer = true;
    const Grammar::Expr numbers = number_expression(g_, range);
    if (divisor == 1) return numbers;
    REDLINE_ASSIGN(const ByteDfa in_range, ByteDfa::from(g_, numbers, deadline_));
    REDLINE_ASSIGN(const ByteDfa multiples,
                   ByteDfa::from(g_, multiples_expression(g_, static_cast<uint32_t>(divisor)), deadline_));
    REDLINE_ASSIGN(const ByteDfa both, ByteDfa::intersect(in_range, multiples, deadline_));
    return graph_of(both);
  }

  Grammar::Expr graph_of(const ByteDfa& dfa) {
    const std::vector<bool> live = dfa.live();
    if (!live[0]) return g_.nothing();
    Grammar::Graph graph;
    graph.num_states = dfa.num_states();
    for (uint32_t s = 0; s < dfa.num_states(); ++s) {
      if (dfa.accepts(s)) graph.accepts.push_back(s);
      for (uint32_t b = 0; live[s] && b < 256; ++b)
        if (const uint32_t to = dfa.step(s, static_cast<uint8_t>(b)); live[to])
          graph.add(s, g_.byte_range(static_cast<uint8_t>(b), static_cast<uint8_t>(b)), to);
    }
    return g_.graph(std::move(graph));
  }

  Result<ByteDfa> search_language(const Json& schema, std::string_view keyword, const std::string& pattern,
                                  RegexSyntax::Reading reading) {
    const auto key = std::pair(pattern, reading);
    if (const auto found = languages_.find(key); found != languages_.end()) return found->second;
    const auto within = [&](const Status& s) {
      return Status(s.code(), fmt::format("JSON schema: {}: {}: {}", place(schema), keyword, s.message()));
    };
    const Result<RegexSyntax> syntax = RegexSyntax::parse(pattern);
    if (!syntax.ok()) return within(syntax.status());
    Grammar own;
    Result<ByteDfa> dfa = ByteDfa::from(own, syntax->search(own, reading), deadline_);
    if (!dfa.ok()) return within(dfa.status());
    languages_.emplace(key, *dfa);
    return dfa;
  }

  // Of pattern and format; nullopt: there is neither.
  Result<std::optional<ByteDfa>> string_language(const Schemas& schemas, RegexSyntax::Reading reading,
                                                 const std::set<const Json*>& without = {}) {
    std::optional<ByteDfa> language;
    for (const Json* schema : schemas)
      for (const char* keyword : {"pattern", "format"}) {
        const Json* value = schema->is_object() ? find(*schema, keyword) : nullptr;
        if (!value || without.contains(value)) continue;
        const std::string& text = value->get_ref<const std::string&>();
        const std::string pattern(keyword[0] == 'f' ? format_pattern(text) : text);
        REDLINE_ASSIGN(ByteDfa own, search_language(*schema, keyword, pattern, reading));
        if (language) {
          REDLINE_ASSIGN(own, ByteDfa::intersect(*language, own, deadline_));
        }
        language = std::move(own);
      }
    return language;
  }

  static void bound_length(const Schemas& schemas, const char* min_key, const char* greatest_key, uint32_t& least,
                           uint32_t& greatest) {
    for (const Json* schema : schemas) {
      if (!schema->is_object()) continue;
      if (const Json* v = find(*schema, min_key)) least = std::max(least, count_of(*v));
      if (const Json* v = find(*schema, greatest_key)) greatest = std::min(greatest, count_of(*v));
    }
  }

  Result<Grammar::Expr> string_of(const Schemas& schemas) {
    uint32_t least = 0, greatest = kUnbounded;
    bound_length(schemas, "minLength", "maxLength", least, greatest);
    if (least > greatest || least == kUnbounded) return g_.nothing();
    // ^[class]{m,n}$ are bounds of the length, which are counted.
    std::set<const Json*> counted;
    std::optional<CharSet> chars;
    for (const Json* schema : schemas)
      if (const Json* pattern = find(*schema, "pattern")) {
        const Result<RegexSyntax> syntax = RegexSyntax::parse(pattern->get_ref<const std::string&>());
        const auto shape = syntax.ok() ? syntax->as_counted_class() : std::nullopt;
        if (!shape) continue;
        chars = chars ? intersect(*chars, shape->chars) : shape->chars;
        least = std::max(least, shape->least);
        greatest = std::min(greatest, shape->greatest);
        counted.insert(pattern);
      }
    if (least > greatest) return g_.nothing();
    REDLINE_ASSIGN(auto language, string_language(schemas, RegexSyntax::Reading::kStrict, counted));
    if (!language && !chars) {
      Grammar::Rule& rule = strings_.try_emplace({least, greatest}, UINT32_MAX).first->second;
      if (rule == UINT32_MAX) {
        rule = g_.add_rule("a string");
        g_.define(rule, any_json_string(g_, least, greatest));
      }
      return g_.call(rule);
    }
    if (chars) {
      Grammar own;
      REDLINE_ASSIGN(ByteDfa of_chars, ByteDfa::from(own, own.repeat(own.chars(*chars), 0, kUnbounded), deadline_));
      if (language) {
        REDLINE_ASSIGN(of_chars, ByteDfa::intersect(*language, of_chars, deadline_));
      }
      language = std::move(of_chars);
    }
    Result<Grammar::Expr> text = json_string_of(g_, *language, least, greatest);
    if (!text.ok())
      return Status(text.status().code(), fmt::format("JSON schema: {}: minLength, maxLength: {} not supported",
                                                      place(*schemas[0]), text.status().message()));
    return text;
  }

  static const Json* items_at(const Json& schema, size_t i) {
    const Json *prefix = find(schema, "prefixItems"), *items = find(schema, "items");
    const Json* rest = items;
    if (!rest && !schema.contains("prefixItems")) rest = find(schema, "unevaluatedItems");
    if (!items && prefix) rest = find(schema, "unevaluatedItems");
    if (items && items->is_array()) {
      prefix = items;
      rest = find(schema, "additionalItems");
    }
    return prefix && i < prefix->size() ? &(*prefix)[i] : rest;
  }
  static size_t prefix_of(const Json& schema) {
    const Json *prefix = find(schema, "prefixItems"), *items = find(schema, "items");
    if (items && items->is_array()) prefix = items;
    return prefix ? prefix->size() : 0;
  }
  static Schemas items_at(const Schemas& schemas, size_t i) {
    Schemas found;
    for (const Json* schema : schemas)
      if (const Json* item = items_at(*schema, i)) found.push_back(item);
    return found;
  }
  static bool has_false(const Schemas& schemas) {
    return std::any_of(schemas.begin(), schemas.end(),
                       [](const Json* s) { return s->is_boolean() && !s->get<bool>(); });
  }

  Result<Grammar::Expr> array_of(const Schemas& schemas) {
    uint32_t least = 0, greatest = kUnbounded;
    bound_length(schemas, "minItems", "maxItems", least, greatest);
    size_t prefix = 0;
    const Json* unique = nullptr;
    for (const Json* schema : schemas) {
      prefix = std::max(prefix, prefix_of(*schema));
      if (const Json* v = find(*schema, "uniqueItems"); v && v->get<bool>()) unique = schema;
    }
    for (size_t i = 0; i <= prefix; ++i)
      if (has_false(items_at(schemas, i))) greatest = std::min(greatest, static_cast<uint32_t>(i));
    if (least > greatest || least == kUnbounded) return g_.nothing();
    if (unique && greatest > 1) return unique_array(schemas, *unique, prefix, least, greatest);
    prefix = std::min<size_t>(prefix, greatest);
    Grammar::Graph graph;
    graph.num_states = static_cast<uint32_t>(prefix) + 1;
    std::vector<Grammar::Expr> body;
    for (size_t i = 0; i < prefix; ++i) {
      REDLINE_ASSIGN(Grammar::Expr item, value_of(items_at(schemas, i)));
      if (i > 0) item = g_.sequence({comma(), item});
      graph.add(static_cast<uint32_t>(i), item, static_cast<uint32_t>(i) + 1);
    }
    const auto last = static_cast<uint32_t>(prefix);
    for (uint32_t i = least; i < last; ++i) graph.accepts.push_back(i);
    Grammar::Expr rest = g_.empty();
    if (greatest > prefix) {
      REDLINE_ASSIGN(const Grammar::Expr item, value_of(items_at(schemas, prefix)));
      const Grammar::Expr more = g_.sequence({comma(), item});
      const uint32_t min_more = least > last ? least - last : 0;
      const uint32_t greatest_more = greatest == kUnbounded ? kUnbounded : greatest - last;
      if (prefix > 0) {
        rest = g_.repeat(more, min_more, greatest_more);
      } else {
        rest = g_.sequence({item, g_.repeat(more, min_more > 0 ? min_more - 1 : 0,
                                            greatest_more == kUnbounded ? kUnbounded : greatest_more - 1)});
        if (least == 0) rest = g_.optional(rest);
      }
    }
    const uint32_t end = graph.add_state();
    graph.add(last, rest, end);
    graph.accepts.push_back(end);
    return g_.sequence({g_.bytes("["), space(), g_.graph(std::move(graph)), space(), g_.bytes("]")});
  }

  // Arrays of distinct values: a rule per set of values that are left.
  Result<Grammar::Expr> unique_array(const Schemas& schemas, const Json& place_of, size_t prefix, uint32_t least,
                                     uint32_t greatest) {
    const char* what = "other than of up to 8 values of one enum is";
    if (prefix > 0) return refused(place_of, "uniqueItems", what);
    Schemas items = items_at(schemas, 0);
    std::vector<const Json*> lists;
    REDLINE_TRY(flatten(items, lists));
    REDLINE_ASSIGN(const auto values, values_of(items));
    if (!values || !lists.empty()) return refused(place_of, "uniqueItems", what);
    std::vector<const Json*> distinct;
    for (const Json* value : *values)
      if (std::none_of(distinct.begin(), distinct.end(), [&](const Json* other) { return equals(*other, *value); }))
        distinct.push_back(value);
    if (distinct.size() > kMaxUniqueValues) return refused(place_of, "uniqueItems", what);
    const size_t n = distinct.size();
    Grammar::Graph graph;
    graph.num_states = 1U << n;  // by the set of values that were used
    for (uint32_t used = 0; used < graph.num_states; ++used) {
      const auto count = static_cast<uint32_t>(__builtin_popcount(used));
      if (count >= least && count <= greatest) graph.accepts.push_back(used);
      if (count >= greatest) continue;
      for (size_t i = 0; i < n; ++i) {
        if (used >> i & 1U) continue;
        const Grammar::Expr text = g_.bytes(distinct[i]->dump());
        graph.add(used, used == 0 ? text : g_.sequence({comma(), text}), used | 1U << i);
      }
    }
    return g_.sequence({g_.bytes("["), space(), g_.graph(std::move(graph)), space(), g_.bytes("]")});
  }

  // Objects ----------------------------------------------------------------------------------------------------------

  struct Pattern {
    const Json* owner;  // the schema with patternProperties
    const Json* value;
    ByteDfa strict, loose;
  };

  static const Json* additional(const Json& schema) {
    if (const Json* more = find(schema, "additionalProperties")) return more;
    return find(schema, "unevaluatedProperties");
  }

  Result<Grammar::Expr> object_of(const Schemas& schemas) {
    std::vector<std::string> names;
    std::set<std::string> required, known;
    std::vector<Pattern> patterns;
    Schemas names_schemas;
    uint32_t least = 0, greatest = kUnbounded;
    bound_length(schemas, "minProperties", "maxProperties", least, greatest);
    bool is_open = true;  // more than the named members may be generated
    for (const Json* schema : schemas) {
      if (const Json* properties = find(*schema, "properties")) {
        if (!additional(*schema)) is_open = false;
        for (const auto& [name, value] : properties->items())
          if (known.insert(name).second) names.push_back(name);
      }
      if (const Json* list = find(*schema, "patternProperties"))
        for (const auto& [pattern, value] : list->items()) {
          REDLINE_ASSIGN(ByteDfa strict,
                         search_language(*schema, "patternProperties", pattern, RegexSyntax::Reading::kStrict));
          REDLINE_ASSIGN(ByteDfa loose,
                         search_language(*schema, "patternProperties", pattern, RegexSyntax::Reading::kLoose));
          patterns.push_back({schema, &value, std::move(strict), std::move(loose)});
          if (patterns.size() > kMaxPatterns)
            return refused(*schema, "patternProperties", "with more than 4 patterns is");
        }
      if (const Json* value = find(*schema, "propertyNames")) names_schemas.push_back(value);
    }
    for (const Json* schema : schemas)
      if (const Json* list = find(*schema, "required"))
        for (const Json& name : *list) {
          required.insert(name.get<std::string>());
          if (known.insert(name.get<std::string>()).second) names.push_back(name.get<std::string>());
        }

    // What a member's value must match; nullopt: the name is not allowed.
    const auto value_schemas = [&](const Json& schema, const auto& matches, const std::string* name, Schemas& out) {
      bool is_matched = false;
      if (const Json* properties = find(schema, "properties"); properties && name)
        if (const Json* value = find(*properties, name->c_str())) out.push_back(value), is_matched = true;
      for (size_t p = 0; p < patterns.size(); ++p) {
        if (patterns[p].owner != &schema) continue;
        const auto [strictly, loosely] = matches(p);
        if (loosely) out.push_back(patterns[p].value);
        is_matched = is_matched || strictly;
      }
      if (const Json* more = additional(schema); more && !is_matched) out.push_back(more);
    };

    Grammar::Graph graph;
    const bool is_counted = least > 0 || greatest != kUnbounded;
    // States: 2 i before any member, 2 i + 1 after one, when i names are behind.
    graph.num_states = 0;
    std::vector<Grammar::Expr> members;
    std::vector<bool> must;
    for (const std::string& name : names) {
      REDLINE_TRY(deadline_.check());
      Schemas value;
      for (const Json* schema : schemas)
        value_schemas(
            *schema,
            [&](size_t p) { return std::pair(patterns[p].strict.matches(name), patterns[p].loose.matches(name)); },
            &name, value);
      bool is_allowed = !has_false(value);
      for (const Json* schema : names_schemas) {
        REDLINE_ASSIGN(const bool valid, validates(Json(name), *schema, 0));
        is_allowed = is_allowed && valid;
      }
      if (!is_allowed) {
        if (required.contains(name)) return g_.nothing();
        continue;
      }
      REDLINE_ASSIGN(const Grammar::Expr member, value_of(std::move(value)));
      members.push_back(g_.sequence({g_.bytes(spell_json_string(name)), space(), g_.bytes(":"), space(), member}));
      must.push_back(required.contains(name));
    }
    // Members with other names, by the set of patterns that they match.
    std::vector<Grammar::Expr> free;
    for (uint32_t set = 0; is_open && set < 1U << patterns.size(); ++set) {
      Schemas value;
      for (const Json* schema : schemas)
        value_schemas(
            *schema, [&](size_t p) { return std::pair((set >> p & 1U) != 0, (set >> p & 1U) != 0); }, nullptr, value);
      if (set == 0 && !patterns.empty() &&
          std::none_of(schemas.begin(), schemas.end(), [](const Json* s) { return additional(*s) != nullptr; }))
        continue;
      if (has_false(value)) continue;
      REDLINE_ASSIGN(const Grammar::Expr name, free_name(known, patterns, set, names_schemas));
      if (name == g_.nothing()) continue;
      REDLINE_ASSIGN(const Grammar::Expr member, value_of(std::move(value)));
      free.push_back(g_.sequence({name, space(), g_.bytes(":"), space(), member}));
    }

    const auto n = static_cast<uint32_t>(members.size());
    graph.num_states = 2 * n + 2;
    for (uint32_t i = 0; i < n; ++i) {
      graph.add(2 * i, members[i], 2 * i + 3, is_counted);
      graph.add(2 * i + 1, g_.sequence({comma(), members[i]}), 2 * i + 3, is_counted);
      if (must[i]) continue;
      graph.add(2 * i, g_.empty(), 2 * i + 2);
      graph.add(2 * i + 1, g_.empty(), 2 * i + 3);
    }
    graph.accepts = {2 * n, 2 * n + 1};
    if (!free.empty()) {
      const Grammar::Expr any = g_.choice(std::move(free));
      // Free names may repeat, and a repeated name is one member: where members must be many, one has a free name.
      const uint32_t target = least > 1 ? graph.add_state() : 2 * n + 1;
      if (target != 2 * n + 1) graph.accepts.push_back(target);
      graph.add(2 * n, any, target, is_counted);
      graph.add(2 * n + 1, g_.sequence({comma(), any}), target, is_counted);
      if (least > n + 1) return refused(*schemas[0], "minProperties", "above the number of named members and one is");
    }
    Grammar::Expr body = g_.graph(std::move(graph));
    if (is_counted) {
      const Grammar::Rule rule = g_.add_rule("an object with a bounded number of members");
      g_.define_counted(rule, body, least, greatest);
      body = g_.call(rule);
      if (least > greatest) return g_.nothing();
    }
    return g_.sequence({g_.bytes("{"), space(), body, space(), g_.bytes("}")});
  }

  // A name, with quotes, that is not one of `known` and matches exactly these patterns.
  Result<Grammar::Expr> free_name(const std::set<std::string>& known, const std::vector<Pattern>& patterns,
                                  uint32_t set, const Schemas& names_schemas) {
    std::optional<ByteDfa> language;
    const auto also = [&](const ByteDfa& more) -> Status {
      if (language) {
        REDLINE_ASSIGN(language, ByteDfa::intersect(*language, more, deadline_));
      } else {
        language = more;
      }
      return {};
    };
    if (known.empty() && patterns.empty() && names_schemas.empty()) return any_json_string(g_, 0, kUnbounded);
    Grammar own;
    REDLINE_ASSIGN(const ByteDfa text,
                   ByteDfa::from(own, own.repeat(own.chars({{0, kMaxChar}}), 0, kUnbounded), deadline_));
    REDLINE_TRY(also(text));
    if (!known.empty()) {
      REDLINE_ASSIGN(const ByteDfa taken,
                     ByteDfa::from(own, own.choice_of_texts({known.begin(), known.end()}), deadline_));
      REDLINE_TRY(also(taken.complement()));
    }
    for (size_t p = 0; p < patterns.size(); ++p)
      REDLINE_TRY(also(set >> p & 1U ? patterns[p].strict : patterns[p].loose.complement()));
    uint32_t least = 0, greatest = kUnbounded;
    if (!names_schemas.empty()) {
      Schemas flat = names_schemas;
      std::vector<const Json*> lists;
      REDLINE_TRY(flatten(flat, lists));
      if (!lists.empty()) return refused(*names_schemas[0], "anyOf", "and oneOf in propertyNames are");
      if (has_false(flat) || !(types_of(flat) & kString)) return g_.nothing();
      bound_length(flat, "minLength", "maxLength", least, greatest);
      REDLINE_ASSIGN(const auto values, values_of(flat));
      if (values) {
        std::vector<std::string> texts;
        for (const Json* value : *values)
          if (value->is_string()) texts.push_back(value->get<std::string>());
        REDLINE_ASSIGN(const ByteDfa listed, ByteDfa::from(own, own.choice_of_texts(std::move(texts)), deadline_));
        REDLINE_TRY(also(listed));
      }
      REDLINE_ASSIGN(const auto strings, string_language(flat, RegexSyntax::Reading::kStrict));
      if (strings) REDLINE_TRY(also(*strings));
    }
    Result<Grammar::Expr> name = json_string_of(g_, *language, least, greatest);
    if (!name.ok())
      return Status(name.status().code(), fmt::format("JSON schema: {}: propertyNames: {} not supported",
                                                      place(*names_schemas[0]), name.status().message()));
    return name;
  }

  // Values of enum and const against the other keywords
  // ----------------------------------------------------------------

  static bool equals(const Json& a, const Json& b) {
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

  Result<bool> validates(const Json& value, const Json& schema, size_t depth) {
    REDLINE_TRY(deadline_.check());
    if (depth > 2 * kMaxSchemaDepth) return wrong(schema, "$ref", "refers to itself without end");
    if (schema.is_boolean()) return schema.get<bool>();
    REDLINE_TRY(check(schema));
    const auto holds = [&](const Json& v, const Json& s) { return validates(v, s, depth + 1); };
    if (schema.contains("$ref")) {
      REDLINE_ASSIGN(const Json* target, resolve(schema));
      REDLINE_ASSIGN(const bool valid, holds(value, *target));
      if (!valid || ref_hides_siblings_) return valid;
    }
    if (const Json* all = find(schema, "allOf"))
      for (const Json& branch : *all) {
        REDLINE_ASSIGN(const bool valid, holds(value, branch));
        if (!valid) return false;
      }
    for (const char* key : {"anyOf", "oneOf"})
      if (const Json* list = find(schema, key)) {
        size_t matches = 0;
        for (const Json& branch : *list) {
          REDLINE_ASSIGN(const bool valid, holds(value, branch));
          matches += valid;
        }
        if (matches == 0 || (key[0] == 'o' && matches != 1)) return false;
      }
    if (!(types_of({&schema}) & type_of(value))) return false;
    if (const Json* one = find(schema, "const"); one && !equals(*one, value)) return false;
    if (const Json* list = find(schema, "enum"))
      if (std::none_of(list->begin(), list->end(), [&](const Json& v) { return equals(v, value); })) return false;
    const auto within = [&](const char* min_key, const char* greatest_key, size_t count) {
      uint32_t least = 0, greatest = kUnbounded;
      bound_length({&schema}, min_key, greatest_key, least, greatest);
      return count >= least && count <= greatest;
    };
    if (value.is_number()) {
      const auto number = decimal_of(value);
      if (!number) return false;
      NumberRange range;
      bound(schema, range);
      if (range.least && number->compare(*range.least) < (range.excludes_least ? 1 : 0)) return false;
      if (range.greatest && number->compare(*range.greatest) > (range.excludes_greatest ? -1 : 0)) return false;
      if (const Json* v = find(schema, "multipleOf")) {
        const uint64_t divisor = std::stoull(decimal_of(*v)->whole);
        uint64_t rest = 0;
        for (const char c : number->whole) rest = (rest * 10 + static_cast<uint64_t>(c - '0')) % divisor;
        if (rest != 0 || !number->is_integer()) return false;
      }
    } else if (value.is_string()) {
      const std::string& text = value.get_ref<const std::string&>();
      if (!within("minLength", "maxLength", count_chars(text))) return false;
      REDLINE_ASSIGN(const auto language, string_language({&schema}, RegexSyntax::Reading::kStrict));
      if (language && !language->matches(text)) return false;
    } else if (value.is_array()) {
      if (!within("minItems", "maxItems", value.size())) return false;
      const Json* unique = find(schema, "uniqueItems");
      for (size_t i = 0; i < value.size(); ++i) {
        for (size_t j = 0; unique && unique->get<bool>() && j < i; ++j)
          if (equals(value[i], value[j])) return false;
        if (const Json* item = items_at(schema, i)) {
          REDLINE_ASSIGN(const bool valid, holds(value[i], *item));
          if (!valid) return false;
        }
      }
    } else if (value.is_object()) {
      if (!within("minProperties", "maxProperties", value.size())) return false;
      if (const Json* names = find(schema, "required"))
        for (const Json& name : *names)
          if (!value.contains(name.get<std::string>())) return false;
      const Json *properties = find(schema, "properties"), *patterns = find(schema, "patternProperties");
      for (const auto& [key, member] : value.items()) {
        bool is_matched = false;
        const auto check_member = [&, &member = member](const Json& s) -> Result<bool> {
          is_matched = true;
          return holds(member, s);
        };
        if (const Json* s = properties ? find(*properties, key.c_str()) : nullptr) {
          REDLINE_ASSIGN(const bool valid, check_member(*s));
          if (!valid) return false;
        }
        if (patterns)
          for (const auto& [pattern, s] : patterns->items()) {
            REDLINE_ASSIGN(const ByteDfa language,
                           search_language(schema, "patternProperties", pattern, RegexSyntax::Reading::kStrict));
            if (!language.matches(key)) continue;
            REDLINE_ASSIGN(const bool valid, check_member(s));
            if (!valid) return false;
          }
        if (const Json* more = additional(schema); more && !is_matched) {
          REDLINE_ASSIGN(const bool valid, holds(member, *more));
          if (!valid) return false;
        }
        if (const Json* names = find(schema, "propertyNames")) {
          REDLINE_ASSIGN(const bool valid, holds(Json(key), *names));
          if (!valid) return false;
        }
      }
    }
    return true;
  }

  const Json& root_;
  const JsonSchemaOptions& options_;
  CompileDeadline& deadline_;
  Grammar& g_;
  bool ref_hides_siblings_ = false;  // draft 7 and before
  bool is_comparing_ = false;
  size_t num_cases_ = 0;
  std::map<const Json*, std::string> places_;
  std::map<std::string, const Json*> anchors_;
  std::set<const Json*> checked_, exclusive_;
  std::map<Schemas, Grammar::Rule> rules_;
  std::vector<std::pair<Grammar::Rule, Schemas>> pending_;
  std::map<std::pair<std::string, RegexSyntax::Reading>, ByteDfa> languages_;
  std::map<std::pair<uint32_t, uint32_t>, Grammar::Rule> strings_;
};

}  // namespace

Result<Grammar::Rule> add_json_schema(Grammar& grammar, std::string_view schema, const std::string& pointer,
                                      const JsonSchemaOptions& options, CompileDeadline& deadline) {
  Json root;
  try {
    // The callback bounds the nesting while the text is read.
    root = Json::parse(schema.begin(), schema.end(), [&](int depth, Json::parse_event_t, Json&) {
      if (depth > static_cast<int>(4 * kMaxSchemaDepth)) throw std::length_error("nested too deep");
      return true;
    });
  } catch (const Json::parse_error& e) {
    return invalid_argument("JSON schema: not JSON at byte {}: {}", e.byte, e.what());
  } catch (const std::exception& e) {
    return invalid_argument("JSON schema: {}", e.what());
  }
  const Json::json_pointer place(pointer);
  if (!root.contains(place)) return invalid_argument("JSON schema: there is nothing at {}", pointer);
  return SchemaCompiler(grammar, root, options, deadline).compile(root[place]);
}

Result<Grammar> grammar_of_json_schema(std::string_view schema, const JsonSchemaOptions& options,
                                       CompileDeadline& deadline) {
  Grammar grammar;
  REDLINE_ASSIGN(grammar.root, add_json_schema(grammar, schema, "", options, deadline));
  return grammar;
}

}  // namespace redline
