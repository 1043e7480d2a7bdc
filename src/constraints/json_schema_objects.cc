// The objects of a JSON Schema. They have the named members in the order of `properties`, then members with other
// names.
#include <algorithm>

#include "constraints/json_schema_compiler.h"
#include "constraints/json_string.h"

namespace redline::json_schema {
namespace {

constexpr size_t kMaxPatterns = 64, kMaxPatternSets = 128;

}  // namespace

Result<SchemaCompiler::Members> SchemaCompiler::members_of(const Schemas& schemas) {
  Members m;
  bound_length(schemas, "minProperties", "maxProperties", m.least, m.greatest);
  for (const Json* value : excluded_values(schemas, kObject))
    if (value->empty()) m.least = std::max(m.least, 1U);
  bool has_properties = false, has_additional = false;
  for (const Json* schema : schemas) {
    if (const Json* properties = find(*schema, "properties")) {
      has_properties = has_properties || (!schema->contains("additionalProperties") && !properties->empty());
      for (const auto& [name, value] : properties->items()) {
        if (m.known.insert(name).second) m.names.push_back(name);
        // Draft 3 has `required` in the schema of the property.
        const Json* required = value.is_object() ? find(value, "required") : nullptr;
        if (required && required->is_boolean() && required->get<bool>()) m.required.insert(name);
      }
    }
    has_additional = has_additional || schema->contains("additionalProperties");
    if (const Json* list = find(*schema, "patternProperties"))
      for (const auto& [pattern, value] : list->items()) {
        REDLINE_ASSIGN(ByteDfa strict,
                       values_.search_language(*schema, "patternProperties", pattern, RegexSyntax::Reading::kStrict));
        REDLINE_ASSIGN(ByteDfa loose,
                       values_.search_language(*schema, "patternProperties", pattern, RegexSyntax::Reading::kLoose));
        m.patterns.push_back({schema, &value, std::move(strict), std::move(loose)});
        if (m.patterns.size() > kMaxPatterns)
          return document_.refused(*schema, "patternProperties",
                                   fmt::format("with more than {} patterns is", kMaxPatterns));
      }
    if (const Json* value = find(*schema, "propertyNames")) m.names_schemas.push_back(value);
    if (schema->contains("unevaluatedProperties")) {
      REDLINE_ASSIGN(m.applied[schema], applied_by(schemas, *schema));
    }
  }
  // If a schema names members or patterns, other members come only if the schema or the caller asks for them.
  m.is_open = options_.allows_additional || (!has_properties && (m.patterns.empty() || has_additional));
  for (const Json* schema : schemas) {
    if (const Json* list = find(*schema, kMembers))
      for (const auto& [name, value] : list->items())
        if (m.known.insert(name).second) m.names.push_back(name);
    if (const Json* list = find(*schema, kAbsent))
      for (const Json& name : *list) m.known.insert(name), m.absent.insert(name);
  }
  for (const Json* schema : schemas)
    if (const Json* list = find(*schema, "required"))
      for (size_t i = 0; list->is_array() && i < list->size(); ++i) {
        const std::string& name = (*list)[i].get_ref<const std::string&>();
        m.required.insert(name);
        if (m.known.insert(name).second) m.names.push_back(name);
      }
  return m;
}

template <class Matches>
Schemas SchemaCompiler::member_schemas(const Schemas& schemas, const Members& members, const Matches& matches,
                                       const std::string* name) {
  Schemas found;
  // Returns true if the schema names the member for certain.
  const auto names_it = [&](const Json& schema) {
    const Json* properties = find(schema, "properties");
    if (properties && name && properties->contains(*name)) return true;
    for (size_t p = 0; p < members.patterns.size(); ++p)
      if (members.patterns[p].owner == &schema && matches(p).first) return true;
    return false;
  };
  for (const Json* schema : schemas) {
    for (const char* key : {"properties", kMembers})
      if (const Json* properties = find(*schema, key); properties && name)
        if (const Json* value = find(*properties, name->c_str())) found.push_back(value);
    for (size_t p = 0; p < members.patterns.size(); ++p)
      if (members.patterns[p].owner == schema && matches(p).second) found.push_back(members.patterns[p].value);
    if (const Json* more = find(*schema, "additionalProperties"); more && !names_it(*schema)) found.push_back(more);
  }
  for (const auto& [schema, others] : members.applied) {
    bool is_evaluated = false;
    for (const Json* other : others)
      is_evaluated = is_evaluated || names_it(*other) || other->contains("additionalProperties") ||
                     (other != schema && other->contains("unevaluatedProperties"));
    if (!is_evaluated) found.push_back(find(*schema, "unevaluatedProperties"));
  }
  return found;
}

Result<std::optional<Grammar::Expr>> SchemaCompiler::named_member(const Schemas& schemas, const Members& members,
                                                                  const std::string& name) {
  REDLINE_TRY(deadline_.check());
  if (members.absent.contains(name)) return std::optional<Grammar::Expr>();
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
  if (!members.is_open && members.patterns.empty()) return found;
  if (members.known.empty() && members.patterns.empty() && members.names_schemas.empty()) {
    Schemas value = member_schemas(
        schemas, members, [](size_t) { return std::pair(false, false); }, nullptr);
    if (has_false(value)) return found;
    REDLINE_ASSIGN(const Grammar::Expr of_value, value_of(std::move(value)));
    found.push_back(member(any_json_string(g_, 0, kUnbounded), of_value));
    return found;
  }
  Grammar own;
  REDLINE_ASSIGN(ByteDfa names, ByteDfa::from(own, own.repeat(own.chars({{0, kMaxChar}}), 0, kUnbounded), deadline_));
  if (!members.known.empty()) {
    REDLINE_ASSIGN(const ByteDfa taken,
                   ByteDfa::from(own, own.choice_of_texts({members.known.begin(), members.known.end()}), deadline_));
    REDLINE_ASSIGN(names, ByteDfa::intersect(names, taken.complement(), deadline_));
  }
  uint32_t least = 0, greatest = kUnbounded;
  if (!members.names_schemas.empty()) {
    Schemas flat = members.names_schemas;
    std::vector<const Json*> lists;
    REDLINE_TRY(document_.flatten(flat, lists));
    bound_length(flat, "minLength", "maxLength", least, greatest);
    for (const Json* schema : members.names_schemas) {
      Result<ByteDfa> strings = values_.strings_of(*schema, RegexSyntax::Reading::kStrict, {flat.begin(), flat.end()});
      if (!strings.ok()) {
        if (strings.status().code() != Code::unsupported) return strings.status();
        REDLINE_TRY(document_.leave_out(*schema, "propertyNames", strings.status().message()));
        continue;
      }
      REDLINE_ASSIGN(names, ByteDfa::intersect(names, *strings, deadline_));
    }
  }
  std::vector<uint8_t> matched;
  REDLINE_TRY(add_free_members(schemas, members, matched, names, least, greatest, found));
  return found;
}

// Adds the members with free names. It decides pattern by pattern whether a name matches; `names` are the names that
// are still possible.
Status SchemaCompiler::add_free_members(const Schemas& schemas, const Members& members, std::vector<uint8_t>& matched,
                                        const std::optional<ByteDfa>& names, uint32_t least, uint32_t greatest,
                                        std::vector<Grammar::Expr>& found) {
  if (names->is_empty()) return {};
  if (matched.size() < members.patterns.size()) {
    const Pattern& pattern = members.patterns[matched.size()];
    for (const bool matches : {true, false}) {
      REDLINE_ASSIGN(const ByteDfa rest,
                     ByteDfa::intersect(*names, matches ? pattern.strict : pattern.loose.complement(), deadline_));
      matched.push_back(matches);
      REDLINE_TRY(add_free_members(schemas, members, matched, rest, least, greatest, found));
      matched.pop_back();
    }
    return {};
  }
  if (!members.is_open && std::none_of(matched.begin(), matched.end(), [](uint8_t m) { return m != 0; })) return {};
  Schemas value = member_schemas(
      schemas, members, [&](size_t p) { return std::pair(matched[p] != 0, matched[p] != 0); }, nullptr);
  if (has_false(value)) return {};
  if (found.size() >= kMaxPatternSets)
    return document_.refused(*schemas[0], "patternProperties", "whose patterns overlap so often is");
  Result<Grammar::Expr> name = json_string_of(g_, *names, least, greatest);
  if (!name.ok()) {
    if (name.status().code() != Code::unsupported) return name.status();
    REDLINE_TRY(document_.leave_out(*schemas[0], "propertyNames", name.status().message()));
    name = json_string_of(g_, *names, 0, kUnbounded);
    REDLINE_TRY(name.status());
  }
  if (*name == g_.nothing()) return {};
  REDLINE_ASSIGN(const Grammar::Expr of_value, value_of(std::move(value)));
  found.push_back(member(*name, of_value));
  return {};
}

Result<Grammar::Expr> SchemaCompiler::object_of(const Schemas& schemas) {
  REDLINE_ASSIGN(const Members all, members_of(schemas));
  uint32_t least = all.least;
  const uint32_t greatest = all.greatest;
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
  const auto n = static_cast<uint32_t>(members.size());
  if (least > greatest || (free.empty() && least > n)) return g_.nothing();
  if (!free.empty() && least > n + 1) {
    REDLINE_TRY(document_.leave_out(*schemas[0], "minProperties", "above the number of named members and one is"));
    least = n + 1;
  }
  // There are two states for each i: before member i or a later one, and after member i - 1 or an earlier one. A label
  // stands once in the graph, so that nested objects do not double it.
  Grammar::Graph graph;
  const bool is_counted = least > 0 || greatest != kUnbounded;
  graph.num_states = 1 + 2 * (n + 1);
  const auto before = [](uint32_t i) { return 1 + 2 * i; };
  const auto after = [](uint32_t i) { return 2 + 2 * i; };
  graph.add(0, g_.empty(), before(0));
  uint32_t first_end = n;  // index of the first member from which on all are optional
  while (first_end > 0 && !must[first_end - 1]) --first_end;
  if (first_end == 0) graph.accepts.push_back(0);
  for (uint32_t i = 0; i <= n; ++i) {
    if (i >= first_end && i > 0) graph.accepts.push_back(after(i));
    if (i > 0) graph.add(after(i), comma(), before(i));
    if (i == n) continue;
    graph.add(before(i), members[i], after(i + 1), is_counted);
    if (!must[i]) graph.add(before(i), g_.empty(), before(i + 1));
  }
  if (!free.empty()) {
    const Grammar::Expr any = g_.choice(std::move(free));
    // Free names may repeat, and a repeated name is only one member. So if several members are required, only one with
    // a free name is allowed.
    const uint32_t last = graph.add_state();
    graph.add(before(n), any, last, is_counted);
    graph.accepts.push_back(last);
    if (least <= 1) graph.add(last, comma(), before(n));
  }
  Grammar::Expr body = g_.graph(std::move(graph));
  if (is_counted) {
    const Grammar::Rule rule = g_.add_rule("an object with a bounded number of members");
    g_.define_counted(rule, body, least, greatest);
    body = g_.call(rule);
  }
  return in_brackets("{", body, "}");
}

}  // namespace redline::json_schema
