#include "constraints/json_schema.h"

#include <algorithm>
#include <numeric>

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
  found->second = g_.add_rule(schemas.empty() ? "any value" : document_.place(*schemas[0]));
  pending_.push_back({found->second, schemas});
  return found->second;
}

Result<Grammar::Expr> SchemaCompiler::value_of(Schemas schemas) {
  REDLINE_ASSIGN(const Grammar::Rule rule, rule_for(std::move(schemas)));
  return g_.call(rule);
}

Status SchemaCompiler::flatten(Schemas& schemas, std::vector<const Json*>& alternatives) {
  REDLINE_TRY(document_.flatten(schemas, alternatives));
  for (const Json* schema : schemas)
    if (const Json* list = schema->is_object() ? find(*schema, "oneOf") : nullptr)
      REDLINE_TRY(check_exclusive(*schema, *list));
  return {};
}

Status SchemaCompiler::check_exclusive(const Json& schema, const Json& list) {
  if (!exclusive_.insert(&list).second) return {};
  for (size_t i = 0; i < list.size(); ++i)
    for (size_t j = i + 1; j < list.size(); ++j) {
      REDLINE_ASSIGN(const bool disjoint, values_.are_disjoint(list[i], list[j]));
      if (!disjoint)
        return document_.refused(schema, "oneOf",
                                 fmt::format("whose alternatives {} and {} may both match (use anyOf) is", i, j));
    }
  return {};
}

Result<Grammar::Expr> SchemaCompiler::cases(Schemas schemas, std::set<const Json*> chosen, size_t depth) {
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

Result<Grammar::Expr> SchemaCompiler::leaf(const Schemas& schemas) {
  for (const Json* schema : schemas)
    if (schema->is_boolean()) return g_.nothing();  // false
  REDLINE_ASSIGN(const auto values, values_.values_of(schemas));
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

Grammar::Expr SchemaCompiler::space() {
  if (!options_.allows_white_space) return g_.empty();
  constexpr uint32_t kMaxSpaces = 20;
  return g_.repeat(g_.chars({{' ', ' '}, {'\n', '\n'}, {'\t', '\t'}, {'\r', '\r'}}), 0, kMaxSpaces);
}

Result<Grammar::Expr> SchemaCompiler::number_of(const Schemas& schemas, bool is_integer) {
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
    if (divisor > kMaxDivisor) return document_.refused(*schema, "multipleOf", "with a common multiple above 1000 is");
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

Result<Grammar::Expr> SchemaCompiler::string_of(const Schemas& schemas) {
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
  REDLINE_ASSIGN(auto language, values_.string_language(schemas, RegexSyntax::Reading::kStrict, counted));
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
                                                    document_.place(*schemas[0]), text.status().message()));
  return text;
}

Grammar::Expr SchemaCompiler::graph_of(const ByteDfa& dfa) {
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

}  // namespace json_schema

Result<Grammar::Rule> add_json_schema(Grammar& grammar, std::string_view schema, const std::string& pointer,
                                      const JsonSchemaOptions& options, CompileDeadline& deadline) {
  using json_schema::Json, json_schema::SchemaDocument;
  Json root;
  try {
    // The callback bounds the nesting while the text is read.
    root = Json::parse(schema.begin(), schema.end(), [&](int depth, Json::parse_event_t, Json&) {
      if (depth > static_cast<int>(4 * json_schema::kMaxSchemaDepth)) throw std::length_error("nested too deep");
      return true;
    });
  } catch (const Json::parse_error& e) {
    return invalid_argument("JSON schema: not JSON at byte {}: {}", e.byte, json_reason(e));
  } catch (const Json::exception& e) {
    return invalid_argument("JSON schema: {}", json_reason(e));
  } catch (const std::exception& e) {
    return invalid_argument("JSON schema: {}", e.what());
  }
  const Json::json_pointer place(pointer);
  if (!root.contains(place)) return invalid_argument("JSON schema: there is nothing at {}", pointer);
  REDLINE_ASSIGN(SchemaDocument document, SchemaDocument::make(root, deadline));
  return json_schema::SchemaCompiler(grammar, document, options).compile(root[place]);
}

Result<Grammar> grammar_of_json_schema(std::string_view schema, const JsonSchemaOptions& options,
                                       CompileDeadline& deadline) {
  Grammar grammar;
  REDLINE_ASSIGN(grammar.root, add_json_schema(grammar, schema, "", options, deadline));
  return grammar;
}

}  // namespace redline
