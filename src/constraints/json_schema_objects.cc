// Objects of a JSON Schema: named members in the order of `properties`, then those with other names.
#include <algorithm>

#include "constraints/json_schema_compiler.h"
#include "constraints/json_string.h"

namespace redline::json_schema {
namespace {

constexpr size_t kMaxPatterns = 4;

}  // namespace

Result<SchemaCompiler::Members> SchemaCompiler::members_of(const Schemas& schemas) {
  Members m;
  bound_length(schemas, "minProperties", "maxProperties", m.least, m.greatest);
  for (const Json* schema : schemas) {
    if (const Json* properties = find(*schema, "properties")) {
      if (!additional(*schema)) m.is_open = false;
      for (const auto& [name, value] : properties->items())
        if (m.known.insert(name).second) m.names.push_back(name);
    }
    if (const Json* list = find(*schema, "patternProperties"))
      for (const auto& [pattern, value] : list->items()) {
        REDLINE_ASSIGN(ByteDfa strict,
                       values_.search_language(*schema, "patternProperties", pattern, RegexSyntax::Reading::kStrict));
        REDLINE_ASSIGN(ByteDfa loose,
                       values_.search_language(*schema, "patternProperties", pattern, RegexSyntax::Reading::kLoose));
        m.patterns.push_back({schema, &value, std::move(strict), std::move(loose)});
        if (m.patterns.size() > kMaxPatterns)
          return document_.refused(*schema, "patternProperties", "with more than 4 patterns is");
      }
    if (const Json* value = find(*schema, "propertyNames")) m.names_schemas.push_back(value);
  }
  for (const Json* schema : schemas)
    if (const Json* list = find(*schema, "required"))
      for (const Json& name : *list) {
        m.required.insert(name.get<std::string>());
        if (m.known.insert(name.get<std::string>()).second) m.names.push_back(name.get<std::string>());
      }
  return m;
}

template <class Matches>
Schemas SchemaCompiler::member_schemas(const Schemas& schemas, const Members& members, const Matches& matches,
                                       const std::string* name) {
  Schemas found;
  for (const Json* schema : schemas) {
    bool is_matched = false;
    if (const Json* properties = find(*schema, "properties"); properties && name)
      if (const Json* value = find(*properties, name->c_str())) found.push_back(value), is_matched = true;
    for (size_t p = 0; p < members.patterns.size(); ++p) {
      if (members.patterns[p].owner != schema) continue;
      const auto [surely, possibly] = matches(p);
      if (possibly) found.push_back(members.patterns[p].value);
      is_matched = is_matched || surely;
    }
    if (const Json* more = additional(*schema); more && !is_matched) found.push_back(more);
  }
  return found;
}

Result<std::optional<Grammar::Expr>> SchemaCompiler::named_member(const Schemas& schemas, const Members& members,
                                                                  const std::string& name) {
  REDLINE_TRY(deadline_.check());
  const auto matches = [&](size_t p) {
    return std::pair(members.patterns[p].strict.matches(name), members.patterns[p].loose.matches(name));
  };
  Schemas value = member_schemas(schemas, members, matches, &name);
  bool is_allowed = !has_false(value);
  for (const Json* schema : members.names_schemas) {
    REDLINE_ASSIGN(const bool valid, values_.validates(Json(name), *schema));
    is_allowed = is_allowed && valid;
  }
  if (!is_allowed) return std::optional<Grammar::Expr>();
  REDLINE_ASSIGN(const Grammar::Expr of_value, value_of(std::move(value)));
  return std::optional(member(g_.bytes(spell_json_string(name)), of_value));
}

Result<std::vector<Grammar::Expr>> SchemaCompiler::free_members(const Schemas& schemas, const Members& members) {
  std::vector<Grammar::Expr> found;
  const bool has_additional =
      std::any_of(schemas.begin(), schemas.end(), [](const Json* s) { return additional(*s) != nullptr; });
  for (uint32_t set = 0; members.is_open && set < 1U << members.patterns.size(); ++set) {
    const auto matches = [&](size_t p) { return std::pair((set >> p & 1U) != 0, (set >> p & 1U) != 0); };
    Schemas value = member_schemas(schemas, members, matches, nullptr);
    if ((set == 0 && !members.patterns.empty() && !has_additional) || has_false(value)) continue;
    REDLINE_ASSIGN(const Grammar::Expr name, free_name(members, set));
    if (name == g_.nothing()) continue;
    REDLINE_ASSIGN(const Grammar::Expr of_value, value_of(std::move(value)));
    found.push_back(member(name, of_value));
  }
  return found;
}

Result<Grammar::Expr> SchemaCompiler::object_of(const Schemas& schemas) {
  REDLINE_ASSIGN(const Members all, members_of(schemas));
  const uint32_t least = all.least, greatest = all.greatest;
  std::vector<Grammar::Expr> members;
  std::vector<bool> must;
  for (const std::string& name : all.names) {
    REDLINE_ASSIGN(const std::optional<Grammar::Expr> named, named_member(schemas, all, name));
    if (!named && all.required.contains(name)) return g_.nothing();
    if (!named) continue;
    members.push_back(*named);
    must.push_back(all.required.contains(name));
  }
  REDLINE_ASSIGN(std::vector<Grammar::Expr> free, free_members(schemas, all));

  // States: 2 i before any member, 2 i + 1 after one, when i names have been read.
  Grammar::Graph graph;
  const bool is_counted = least > 0 || greatest != kUnbounded;
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
    if (least > n + 1)
      return document_.refused(*schemas[0], "minProperties", "above the number of named members and one is");
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

Result<Grammar::Expr> SchemaCompiler::free_name(const Members& members, uint32_t set) {
  std::optional<ByteDfa> language;
  const auto also = [&](const ByteDfa& more) -> Status {
    if (language) {
      REDLINE_ASSIGN(language, ByteDfa::intersect(*language, more, deadline_));
    } else {
      language = more;
    }
    return {};
  };
  if (members.known.empty() && members.patterns.empty() && members.names_schemas.empty())
    return any_json_string(g_, 0, kUnbounded);
  Grammar own;
  REDLINE_ASSIGN(const ByteDfa text,
                 ByteDfa::from(own, own.repeat(own.chars({{0, kMaxChar}}), 0, kUnbounded), deadline_));
  REDLINE_TRY(also(text));
  if (!members.known.empty()) {
    REDLINE_ASSIGN(const ByteDfa taken,
                   ByteDfa::from(own, own.choice_of_texts({members.known.begin(), members.known.end()}), deadline_));
    REDLINE_TRY(also(taken.complement()));
  }
  for (size_t p = 0; p < members.patterns.size(); ++p)
    REDLINE_TRY(also(set >> p & 1U ? members.patterns[p].strict : members.patterns[p].loose.complement()));
  uint32_t least = 0, greatest = kUnbounded;
  if (!members.names_schemas.empty()) {
    Schemas flat = members.names_schemas;
    std::vector<const Json*> lists;
    REDLINE_TRY(flatten(flat, lists));
    if (!lists.empty()) return document_.refused(*members.names_schemas[0], "anyOf", "and oneOf in propertyNames are");
    if (has_false(flat) || !(types_of(flat) & kString)) return g_.nothing();
    bound_length(flat, "minLength", "maxLength", least, greatest);
    REDLINE_ASSIGN(const auto values, values_.values_of(flat));
    if (values) {
      std::vector<std::string> texts;
      for (const Json* value : *values)
        if (value->is_string()) texts.push_back(value->get<std::string>());
      REDLINE_ASSIGN(const ByteDfa listed, ByteDfa::from(own, own.choice_of_texts(std::move(texts)), deadline_));
      REDLINE_TRY(also(listed));
    }
    REDLINE_ASSIGN(const auto strings, values_.string_language(flat, RegexSyntax::Reading::kStrict));
    if (strings) REDLINE_TRY(also(*strings));
  }
  Result<Grammar::Expr> name = json_string_of(g_, *language, least, greatest);
  if (!name.ok())
    return Status(name.status().code(),
                  fmt::format("JSON schema: {}: propertyNames: {} not supported",
                              document_.place(*members.names_schemas[0]), name.status().message()));
  return name;
}

}  // namespace redline::json_schema
