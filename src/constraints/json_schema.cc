#include "constraints/json_schema.h"

#include <algorithm>
#include <numeric>

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "constraints/json_schema_compiler.h"
#include "constraints/json_string.h"
#include "text/json_reader.h"

namespace redline {
namespace json_schema {
namespace {

constexpr size_t kMaxRules = 20'000;

}  // namespace

Result<Grammar::Rule> SchemaCompiler::compile(const Json& schema) {
  REDLINE_ASSIGN(const Grammar::Rule root, rule_for({&schema}));
  while (!pending_.empty()) {
    const auto [rule, schemas] = std::move(pending_.back());
    pending_.pop_back();
    REDLINE_ASSIGN(const Grammar::Expr body, cases(schemas, {}, 0));
    g_.define(rule, body);
  }
  return root;
}

Result<Grammar::Rule> SchemaCompiler::rule_for(Schemas schemas) {
  REDLINE_TRY(deadline_.check());
  std::erase_if(schemas,
                [](const Json* s) { return (s->is_boolean() && s->get<bool>()) || (s->is_object() && s->empty()); });
  std::sort(schemas.begin(), schemas.end());
  schemas.erase(std::unique(schemas.begin(), schemas.end()), schemas.end());
  const auto [found, is_new] = rules_.try_emplace(schemas, 0);
  if (!is_new) return found->second;
  if (rules_.size() > kMaxRules)
    return invalid_argument("JSON schema: it takes more than {} combinations of schemas", kMaxRules);
  const std::vector<uint32_t> description = description_of(schemas);
  if (const auto known = g_.described_rules.find(description); known != g_.described_rules.end())
    return found->second = known->second;
  found->second = g_.add_rule(schemas.empty() ? "any value" : document_.place(*schemas[0]));
  if (!description.empty()) g_.described_rules.emplace(description, found->second);
  pending_.push_back({found->second, schemas});
  return found->second;
}

std::vector<uint32_t> SchemaCompiler::description_of(const Schemas& schemas) {
  std::vector<uint32_t> numbers;
  for (const Json* schema : schemas) {
    const std::optional<uint32_t> number = texts_.number_of(*schema);
    if (!number) return {};
    numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  // A rule depends on the format and the draft as well.
  numbers.push_back(g_.number_of(fmt::format("{} {} {} {}", options_.is_compact, options_.allows_additional,
                                             options_.is_relaxed, document_.ref_hides_siblings())));
  return numbers;
}

Result<Grammar::Expr> SchemaCompiler::value_of(Schemas schemas) {
  REDLINE_ASSIGN(const Grammar::Rule rule, rule_for(std::move(schemas)));
  return g_.call(rule);
}

Result<const SchemaCompiler::Parts*> SchemaCompiler::parts_of(const Json& schema) {
  if (const auto found = parts_.find(&schema); found != parts_.end()) return &found->second;
  Parts parts;
  REDLINE_TRY(document_.check(schema));
  const Json* target = nullptr;
  const bool hides = document_.ref_hides_siblings() && schema.is_object() && schema.contains("$ref");
  if (Result<const Json*> found = document_.target_of(schema); found.ok()) target = *found;
  else if (found.status().code() != Code::unsupported || !document_.is_relaxed()) return found.status();
  else REDLINE_TRY(document_.leave_out(schema, "$ref"));
  if (target) parts.schemas.push_back(target);
  if (schema.is_object() && !hides) {
    if (const Json* all = find(schema, "allOf"))
      for (const Json& branch : *all) parts.schemas.push_back(&branch);
    if (const Json* list = find(schema, "anyOf")) parts.lists.push_back(list);
    if (const Json* list = find(schema, "oneOf")) REDLINE_TRY(add_one_of(schema, *list, parts));
    if (const Json* condition = find(schema, "if")) REDLINE_TRY(add_if(schema, *condition, parts));
    add_dependencies(schema, parts);
    if (const Json* other = find(schema, "not")) {
      REDLINE_ASSIGN(const Negation negation, negations_.of(*other));
      if (negation.schema) parts.schemas.push_back(negation.schema);
      else REDLINE_TRY(document_.leave_out(schema, "not", fmt::format("of {} is", negation.lost)));
    }
  }
  return &parts_.emplace(&schema, std::move(parts)).first->second;
}

// Alternatives that exclude each other are the same as in anyOf. Others become combinations in which one holds and the
// rest do not.
Status SchemaCompiler::add_one_of(const Json& schema, const Json& list, Parts& parts) {
  constexpr size_t kMaxCombinations = 3000;
  std::vector<std::vector<size_t>> overlaps(list.size());
  for (size_t i = 0; i < list.size(); ++i)
    for (size_t j = i + 1; j < list.size(); ++j) {
      REDLINE_ASSIGN(const bool disjoint, values_.are_disjoint(list[i], list[j]));
      if (disjoint) continue;
      overlaps[i].push_back(j);
      overlaps[j].push_back(i);
    }
  Json exclusive = Json::array();
  size_t combinations = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    Json all = Json::array({document_.at(list[i])});
    size_t product = 1;
    for (const size_t j : overlaps[i]) {
      REDLINE_ASSIGN(const Negation negation, negations_.of(list[j]));
      product *= std::max<size_t>(1, negation.num_alternatives);
      // A complement that is only partly known would exclude texts that the schema allows. A caller who relaxes the
      // schema prefers to leave oneOf out.
      const bool is_partial = !negation.lost.empty() && document_.is_relaxed();
      if (!negation.schema || is_partial || product > kMaxCombinations) {
        parts.lists.push_back(&list);
        return document_.leave_out(
            schema, "oneOf",
            fmt::format("whose alternatives {} and {} may both match (use anyOf) is", std::min(i, j), std::max(i, j)));
      }
      all.push_back(document_.at(*negation.schema));
    }
    combinations += product;
    exclusive.push_back({{"allOf", std::move(all)}});
  }
  if (combinations > kMaxCombinations) {
    parts.lists.push_back(&list);
    return document_.leave_out(schema, "oneOf", "with so many alternatives that may both match (use anyOf) is");
  }
  const bool has_overlaps = combinations > list.size() ||
                            std::any_of(overlaps.begin(), overlaps.end(), [](const auto& o) { return !o.empty(); });
  parts.lists.push_back(has_overlaps ? document_.own(std::move(exclusive), schema) : &list);
  return {};
}

Status SchemaCompiler::add_if(const Json& schema, const Json& condition, Parts& parts) {
  const Json *then = find(schema, "then"), *otherwise = find(schema, "else");
  if (!then && !otherwise) return {};
  REDLINE_ASSIGN(const Negation negation, negations_.of(condition));
  const auto both = [&](const Json& a, const Json* b) {
    Json all = Json::array({document_.at(a)});
    if (b) all.push_back(document_.at(*b));
    return Json{{"allOf", std::move(all)}};
  };
  Json list = Json::array({both(condition, then)});
  if (negation.schema) list.push_back(both(*negation.schema, otherwise));
  // If `then` and `else` both hold, the condition does not matter.
  if (!negation.lost.empty())
    list.push_back(then && otherwise ? both(*then, otherwise) : both(then ? *then : *otherwise, nullptr));
  const Json* own = document_.own(std::move(list), schema);
  if (negation.schema && otherwise) else_branches_[&schema] = &(*own)[1];
  parts.lists.push_back(own);
  return {};
}

void SchemaCompiler::add_dependencies(const Json& schema, Parts& parts) {
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"})
    if (const Json* dependencies = find(schema, key))
      for (const auto& [name, needed] : dependencies->items()) {
        Json present = {{kOwnTypes, kObject}, {"required", Json::array({name})}};
        if (needed.is_string()) present["required"].push_back(needed);
        else if (needed.is_array()) present["required"].insert(present["required"].end(), needed.begin(), needed.end());
        else present["allOf"] = Json::array({document_.at(needed)});
        const Json absent = {{kAbsent, Json::array({name})}};
        parts.lists.push_back(document_.own(Json::array({std::move(present), absent}), schema));
      }
}

Status SchemaCompiler::flatten(Schemas& schemas, std::vector<const Json*>& alternatives) {
  return document_.flatten(schemas, alternatives, [this](const Json& schema) { return parts_of(schema); });
}

bool SchemaCompiler::is_impossible(const Schemas& schemas) const {
  if (has_false(schemas) || types_of(schemas) == 0) return true;
  if (types_of(schemas) != kObject) return false;
  std::set<std::string> required, absent;
  for (const Json* schema : schemas) {
    if (const Json* names = find(*schema, "required"); names && names->is_array())
      for (const Json& name : *names) required.insert(name.get<std::string>());
    if (const Json* names = find(*schema, kAbsent))
      for (const Json& name : *names) absent.insert(name.get<std::string>());
  }
  // A member that must be there with two different values makes the schema impossible.
  std::map<std::string, const Json*> values;
  for (const Json* schema : schemas)
    for (const char* key : {"properties", kMembers})
      if (const Json* properties = find(*schema, key))
        for (const auto& [name, property] : properties->items()) {
          if (!required.contains(name) || !property.is_object()) continue;
          const Json *one = find(property, "const"), *list = find(property, "enum");
          if (!one && list && list->size() == 1) one = &(*list)[0];
          if (!one) continue;
          const auto [found, is_new] = values.try_emplace(name, one);
          if (!is_new && !equals(*found->second, *one)) return true;
        }
  return std::any_of(absent.begin(), absent.end(), [&](const std::string& name) { return required.contains(name); });
}

Result<Schemas> SchemaCompiler::applied_by(const Schemas& schemas, const Json& schema) {
  const std::set<const Json*> all(schemas.begin(), schemas.end());
  Schemas found;
  std::set<const Json*> seen;
  std::vector<const Json*> work = {&schema};
  const auto push_if_it_holds = [&](const Json& branch) -> Status {
    REDLINE_ASSIGN(const Json* target, document_.target_of(branch));
    if (all.contains(&branch) || (target && all.contains(target))) work.push_back(&branch);
    return {};
  };
  while (!work.empty()) {
    const Json* at = work.back();
    work.pop_back();
    if (!at->is_object() || !seen.insert(at).second) continue;
    found.push_back(at);
    REDLINE_ASSIGN(const Json* target, document_.target_of(*at));
    if (target) work.push_back(target);
    if (target && document_.ref_hides_siblings() && at->contains("$ref")) continue;
    if (const Json* list = find(*at, "allOf"))
      for (const Json& branch : *list) work.push_back(&branch);
    for (const char* key : {"anyOf", "oneOf"})
      if (const Json* list = find(*at, key))
        for (const Json& branch : *list) REDLINE_TRY(push_if_it_holds(branch));
    for (const char* key : {"dependentSchemas", "dependencies"})
      if (const Json* list = find(*at, key))
        for (const Json& branch : *list) REDLINE_TRY(push_if_it_holds(branch));
    if (const Json* condition = find(*at, "if")) {
      const size_t before = work.size();
      REDLINE_TRY(push_if_it_holds(*condition));
      const Json* then = find(*at, "then");
      if (work.size() > before && then) work.push_back(then);
      const auto branch = else_branches_.find(at);
      if (branch != else_branches_.end() && all.contains(branch->second)) work.push_back(find(*at, "else"));
    }
  }
  return found;
}

Result<Grammar::Expr> SchemaCompiler::cases(Schemas schemas, std::set<const Json*> chosen, size_t depth) {
  REDLINE_TRY(deadline_.check());
  if (depth > kMaxSchemaDepth)
    return invalid_argument("JSON schema: anyOf, oneOf and dependencies are nested too deep");
  std::vector<const Json*> alternatives;
  REDLINE_TRY(flatten(schemas, alternatives));
  if (is_impossible(schemas)) return g_.nothing();
  std::erase_if(alternatives, [&](const Json* list) { return chosen.contains(list); });
  if (alternatives.empty()) return leaf(schemas);
  const Json* list = alternatives[0];
  chosen.insert(list);
  std::vector<Grammar::Expr> items;
  for (const Json& branch : *list) {
    Schemas with = schemas;
    with.push_back(&branch);
    if (++num_cases_ > kMaxRules)
      return invalid_argument("JSON schema: anyOf, oneOf and dependencies have more than {} combinations", kMaxRules);
    REDLINE_ASSIGN(const Grammar::Expr item, cases(std::move(with), chosen, depth + 1));
    items.push_back(item);
  }
  return g_.choice(std::move(items));
}

Result<Grammar::Expr> SchemaCompiler::leaf(const Schemas& schemas) {
  REDLINE_ASSIGN(const auto values, values_.values_of(schemas));
  if (values) {
    std::vector<Grammar::Expr> items;
    std::vector<std::string> texts;
    for (const Json* value : *values) {
      if (value->is_structured() && !value->empty()) items.push_back(value_expression(*value));
      else texts.push_back(value->dump());
    }
    items.push_back(g_.choice_of_texts(std::move(texts)));
    return g_.choice(std::move(items));
  }
  uint8_t types = types_of(schemas);
  // null is a type of its own. Of arrays and objects, only the empty ones can be excluded, with their whole type.
  for (const Json* value : excluded_values(schemas, kNull | kArray | kObject))
    if (value->is_null() || !value->empty()) types &= ~type_of(*value);
  std::vector<Grammar::Expr> items;
  if (types & kNull) items.push_back(g_.bytes("null"));
  if (types & kBoolean) {
    bool excluded[2] = {};
    for (const Json* value : excluded_values(schemas, kBoolean)) excluded[value->get<bool>()] = true;
    for (const bool value : {true, false})
      if (!excluded[value]) items.push_back(g_.bytes(value ? "true" : "false"));
  }
  if (types & kNumber) {
    REDLINE_ASSIGN(const Grammar::Expr number, number_of(schemas, types & kNumber));
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

std::vector<const Json*> SchemaCompiler::excluded_values(const Schemas& schemas, uint8_t types) {
  std::vector<const Json*> found;
  for (const Json* schema : schemas)
    if (const Json* values = find(*schema, kNotEnum))
      for (const Json& value : *values)
        if (type_of(value) & types) found.push_back(&value);
  return found;
}

Grammar::Expr SchemaCompiler::value_expression(const Json& value) {
  if (!value.is_structured() || value.empty()) return g_.bytes(value.dump());
  std::vector<Grammar::Expr> items;
  for (const auto& [key, inner] : value.items()) {
    if (!items.empty()) items.push_back(comma());
    const Grammar::Expr item = value_expression(inner);
    items.push_back(value.is_object() ? member(g_.bytes(Json(key).dump()), item) : item);
  }
  const Grammar::Expr body = g_.sequence(std::move(items));
  return value.is_object() ? in_brackets("{", body, "}") : in_brackets("[", body, "]");
}

Grammar::Expr SchemaCompiler::in_brackets(const char* begin, Grammar::Expr body, const char* end) {
  return g_.sequence({g_.bytes(begin), space(), body, space(), g_.bytes(end)});
}

Grammar::Expr SchemaCompiler::space() {
  if (options_.is_compact) return g_.empty();
  if (!space_) {
    // White space is one space, or a line break and a counted indentation.
    constexpr uint32_t kMaxIndentation = 64;
    Grammar::Graph graph;
    graph.num_states = 2;
    graph.add(0, g_.bytes(" "), 1);
    const uint32_t indentation = graph.add_state(), line_end = graph.add_state();
    graph.add(0, g_.bytes("\r"), line_end);
    graph.add(0, g_.bytes("\n"), indentation);
    graph.add(line_end, g_.bytes("\n"), indentation);
    graph.add(indentation, g_.choice({g_.bytes(" "), g_.bytes("\t")}), indentation, true);
    graph.accepts = {0, 1, indentation};
    space_ = g_.add_rule("white space");
    g_.define_counted(*space_, g_.graph(std::move(graph)), 0, kMaxIndentation);
  }
  return g_.call(*space_);
}

Result<Grammar::Expr> SchemaCompiler::number_of(const Schemas& schemas, uint8_t types) {
  NumberRange range;
  range.is_integer = types == kInteger;
  // multipleOf is divisor / 10^scale.
  uint64_t divisor = 0;
  uint32_t scale = 0;
  const auto scaled = [](const Decimal& d, uint32_t digits) {
    return std::stoull(d.whole + d.fraction + std::string(digits - d.fraction.size(), '0'));
  };
  const auto fits = [](const Decimal& d) { return d.fraction.size() <= kMaxScale && d.whole.size() <= 6; };
  const auto is_small = [](uint64_t n, uint32_t digits) { return n * (digits + 1) <= kMaxDivisor; };
  std::vector<ByteDfa> also;
  const auto add = [&](Grammar& own, Grammar::Expr expression, bool complements) -> Status {
    REDLINE_ASSIGN(const ByteDfa dfa, ByteDfa::from(own, expression, deadline_));
    also.push_back(complements ? dfa.complement() : dfa);
    return {};
  };
  Grammar own;
  for (const Json* schema : schemas) {
    bound(*schema, range);
    if (const Json* v = find(*schema, "multipleOf")) {
      const Decimal d = *decimal_of(*v);
      // A multiple has at most as many digits after the point as the divisor.
      const auto digits = static_cast<uint32_t>(d.fraction.size());
      const uint32_t common = std::max(scale, digits);
      uint64_t combined = divisor;
      for (uint32_t k = scale; k < common && combined <= kMaxDivisor; ++k) combined *= 10;
      if (fits(d)) combined = combined == 0 ? scaled(d, common) : std::lcm(combined, scaled(d, common));
      if (!fits(d) || !is_small(combined, common)) {
        REDLINE_TRY(
            document_.leave_out(*schema, "multipleOf",
                                fmt::format("with more than {} remainders (digits times the number) is", kMaxDivisor)));
        continue;
      }
      divisor = combined;
      scale = common;
    }
    if (const Json* v = find(*schema, kNotMultipleOf)) {
      const Decimal d = *decimal_of(*v);
      const auto digits = static_cast<uint32_t>(d.fraction.size());
      if (!fits(d) || !is_small(scaled(d, digits), digits))
        return document_.refused(*schema, "not", "of multipleOf with so many remainders is");
      REDLINE_TRY(add(own, multiples_expression(own, static_cast<uint32_t>(scaled(d, digits)), digits, true), true));
    }
  }
  if (divisor > 0) {
    if (scale == 0) range.is_integer = true;
    REDLINE_TRY(add(own, multiples_expression(own, static_cast<uint32_t>(divisor), scale, false), false));
  }
  for (const Json* value : excluded_values(schemas, kNumber)) {
    const auto number = decimal_of(*value);
    if (!number) return document_.refused(*schemas[0], "not", "of a number with more than 40 digits is");
    REDLINE_TRY(add(own, spellings_of(own, *number), true));
  }
  if (types == kFraction) REDLINE_TRY(add(own, multiples_expression(own, 1, 0, true), true));
  range.has_exponent = also.empty();
  if (also.empty()) return number_expression(g_, range);
  REDLINE_ASSIGN(ByteDfa language, ByteDfa::from(own, number_expression(own, range), deadline_));
  for (const ByteDfa& dfa : also) {
    REDLINE_ASSIGN(language, ByteDfa::intersect(language, dfa, deadline_));
  }
  return language.expression(g_);
}

Result<Grammar::Expr> SchemaCompiler::string_of(const Schemas& schemas) {
  uint32_t least = 0, greatest = kUnbounded;
  bound_length(schemas, "minLength", "maxLength", least, greatest);
  if (least > greatest || least == kUnbounded) return g_.nothing();
  // A pattern ^[class]{m,n}$ is read as bounds of the length, which are counted.
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
  REDLINE_ASSIGN(auto language, values_.string_language(schemas, RegexSyntax::Reading::kStrict, counted));
  const std::vector<const Json*> excluded = excluded_values(schemas, kString);
  if (!excluded.empty()) {
    Grammar own;
    std::vector<std::string> texts;
    texts.reserve(excluded.size());
    for (const Json* value : excluded) texts.push_back(value->get<std::string>());
    REDLINE_ASSIGN(const ByteDfa others, ByteDfa::from(own, own.choice_of_texts(std::move(texts)), deadline_));
    if (!language) {
      REDLINE_ASSIGN(language, ByteDfa::from(own, own.repeat(own.chars({{0, kMaxChar}}), 0, kUnbounded), deadline_));
    }
    REDLINE_ASSIGN(language, ByteDfa::intersect(*language, others.complement(), deadline_));
  }
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
  if (text.ok() || text.status().code() != Code::unsupported) return text;
  for (const char* keyword : {"minLength", "maxLength"})
    for (const Json* schema : schemas)
      if (schema->contains(keyword)) REDLINE_TRY(document_.leave_out(*schema, keyword, text.status().message()));
  return json_string_of(g_, *language, 0, kUnbounded);
}

}  // namespace json_schema

Result<Grammar::Rule> add_json_schema(Grammar& grammar, std::string_view schema, const std::string& pointer,
                                      const JsonFormat& options, CompileDeadline& deadline) {
  using json_schema::Json, json_schema::SchemaDocument;
  REDLINE_TRY(check_json_bounds(schema, "JSON schema", {.depth = static_cast<int>(4 * json_schema::kMaxSchemaDepth)}));
  OrderedJsonBuilder builder;
  if (!builder.parse(schema)) {
    const std::string_view reason = json_reason(builder.error());
    if (builder.is_out_of_range()) return invalid_argument("JSON schema: {}", reason);
    return invalid_argument("JSON schema: not JSON at byte {}: {}", builder.error_byte(), reason);
  }
  const Json& root = builder.root();
  const Json::json_pointer place(pointer);
  if (!root.contains(place)) return invalid_argument("JSON schema: there is nothing at {}", pointer);
  REDLINE_ASSIGN(SchemaDocument document, SchemaDocument::make(root, deadline, options.is_relaxed));
  REDLINE_ASSIGN(const Grammar::Rule rule,
                 json_schema::SchemaCompiler(grammar, document, options).compile(root[place]));
  grammar.unenforced.insert(document.unenforced().begin(), document.unenforced().end());
  return rule;
}

Result<Grammar> grammar_of_json_schema(std::string_view schema, const JsonFormat& options, CompileDeadline& deadline) {
  Grammar grammar;
  REDLINE_ASSIGN(grammar.root, add_json_schema(grammar, schema, "", options, deadline));
  return grammar;
}

}  // namespace redline
