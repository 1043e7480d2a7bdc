// The arrays of a JSON Schema. They have items with schemas of their own, then any number of other items.
#include <algorithm>

#include "constraints/json_schema_compiler.h"

namespace redline::json_schema {
namespace {

constexpr size_t kMaxFiniteValues = 256, kMaxFiniteDepth = 8;

}  // namespace

/// The keyword `contains` of one schema: from `least` to `greatest` items must match.
struct SchemaCompiler::Contains {
  const Json* schema;
  const Json* negation;  ///< complement of `schema`; nullptr if there is no upper bound
  uint32_t least, greatest;
  /// Returns the number up to which matching items are counted.
  uint32_t limit() const { return greatest == kUnbounded ? least : greatest; }
};

Schemas SchemaCompiler::items_at(const Schemas& schemas, const std::map<const Json*, Schemas>& applied,
                                 size_t i) const {
  Schemas found = json_schema::items_at(schemas, i);
  for (const auto& [schema, others] : applied) {
    bool is_evaluated = false;
    for (const Json* other : others)
      is_evaluated = is_evaluated || json_schema::items_at(*other, i) != nullptr ||
                     (other != schema && other->contains("unevaluatedItems"));
    if (!is_evaluated) found.push_back(find(*schema, "unevaluatedItems"));
  }
  return found;
}

Result<Grammar::Expr> SchemaCompiler::array_of(const Schemas& schemas) {
  uint32_t least = 0, greatest = kUnbounded;
  bound_length(schemas, "minItems", "maxItems", least, greatest);
  for (const Json* value : excluded_values(schemas, kArray))
    if (value->empty()) least = std::max(least, 1U);
  size_t prefix = 0;
  const Json* unique = nullptr;
  std::map<const Json*, Schemas> applied;
  std::vector<Contains> contains;
  for (const Json* schema : schemas) {
    prefix = std::max(prefix, prefix_of(*schema));
    if (const Json* v = find(*schema, "uniqueItems"); v && v->get<bool>()) unique = schema;
    if (schema->contains("unevaluatedItems")) {
      REDLINE_ASSIGN(applied[schema], applied_by(schemas, *schema));
    }
    if (const Json* item = find(*schema, "contains")) {
      const Json *min = find(*schema, "minContains"), *max = find(*schema, "maxContains");
      Contains c{item, nullptr, min ? count_of(*min) : 1, max ? count_of(*max) : kUnbounded};
      if (c.least > c.greatest) return g_.nothing();
      if (c.greatest != kUnbounded) {
        REDLINE_ASSIGN(const Negation negation, negations_.of(*item));
        if (!negation.schema) {
          REDLINE_TRY(
              document_.leave_out(*schema, "maxContains", fmt::format("with {} in `contains` is", negation.lost)));
          c.greatest = kUnbounded;
        }
        c.negation = negation.schema;
      }
      if (c.limit() > 0 || c.greatest != kUnbounded) contains.push_back(c);
    }
  }
  for (const auto& [schema, others] : applied)
    for (const Json* other : others) prefix = std::max(prefix, prefix_of(*other));
  for (size_t i = 0; i <= prefix; ++i)
    if (has_false(items_at(schemas, applied, i))) greatest = std::min(greatest, static_cast<uint32_t>(i));
  if (least > greatest || least == kUnbounded) return g_.nothing();
  if (unique && greatest > 1) {
    if (prefix == 0 && contains.empty()) {
      REDLINE_ASSIGN(const auto distinct, unique_array(items_at(schemas, applied, 0), least, greatest));
      if (distinct) return *distinct;
    }
    REDLINE_TRY(document_.leave_out(*unique, "uniqueItems", "other than of values that can be listed is"));
  }
  prefix = std::min<size_t>(prefix, greatest);
  return items_with_contains(schemas, applied, std::move(contains), prefix, least, greatest);
}

// A state is the number of items, counted up to the prefix, and the number of items that match each `contains`. Each
// occurs twice, before an item and after one. A label stands once in the graph, so that nested arrays do not double it.
Result<Grammar::Expr> SchemaCompiler::items_with_contains(const Schemas& schemas,
                                                          const std::map<const Json*, Schemas>& applied,
                                                          std::vector<Contains> contains, size_t prefix, uint32_t least,
                                                          uint32_t greatest) {
  constexpr size_t kMaxContains = 3, kMaxContainsStates = 2000;
  size_t num_states = prefix + 1;
  for (const Contains& c : contains) num_states *= std::min<size_t>(c.limit(), kMaxContainsStates) + 1;
  if (!contains.empty() && (contains.size() > kMaxContains || num_states > kMaxContainsStates)) {
    REDLINE_TRY(document_.leave_out(*schemas[0], "contains", "of so many items is"));
    contains.clear();
  }
  // The graph counts the items if the positions alone do not tell whether the length is within its bounds.
  const bool is_counted = (greatest != kUnbounded && greatest > prefix) || least > std::max<size_t>(prefix, 1);
  using Place = std::pair<size_t, std::vector<uint32_t>>;
  std::map<Place, std::pair<uint32_t, uint32_t>> states;  // for each place: the states before and after an item
  std::vector<Place> work;
  Grammar::Graph graph;
  const auto states_of = [&](const Place& place) {
    const auto [found, is_new] = states.try_emplace(place);
    if (is_new) {
      found->second = {graph.add_state(), graph.add_state()};
      work.push_back(place);
    }
    return found->second;
  };
  const auto has_enough = [&](const Place& place) {
    for (size_t k = 0; k < contains.size(); ++k)
      if (place.second[k] < contains[k].least) return false;
    return true;
  };
  const Place first = {0, std::vector<uint32_t>(contains.size())};
  graph.add(0, g_.empty(), states_of(first).first);
  if (least == 0 && has_enough(first)) graph.accepts.push_back(0);
  while (!work.empty()) {
    const Place place = work.back();
    work.pop_back();
    const auto [before, after] = states.at(place);
    // In state `after`, at least place.first items have been read, or at least one if there is no prefix.
    const bool is_long_enough = is_counted || place.first >= least || prefix == 0;
    if (is_long_enough && has_enough(place)) graph.accepts.push_back(after);
    const bool is_last = greatest != kUnbounded && !is_counted && place.first >= greatest;
    if (!is_last) graph.add(after, comma(), before);
    if (is_last) continue;
    for (uint32_t set = 0; set < 1U << contains.size(); ++set) {
      Schemas item = items_at(schemas, applied, place.first);
      Place next = {std::min(place.first + 1, prefix), place.second};
      bool is_useful = true;
      for (size_t k = 0; k < contains.size(); ++k) {
        const Contains& c = contains[k];
        if (set >> k & 1U) {
          is_useful = is_useful && next.second[k] < c.limit();
          ++next.second[k];
          item.push_back(c.schema);
        } else if (c.greatest != kUnbounded) {
          item.push_back(c.negation);
        }
      }
      if (!is_useful || has_false(item)) continue;
      REDLINE_ASSIGN(const Grammar::Expr value, value_of(std::move(item)));
      graph.add(before, value, states_of(next).second, is_counted);
    }
  }
  Grammar::Expr body = g_.graph(std::move(graph));
  if (is_counted) {
    const Grammar::Rule rule = g_.add_rule("items of a bounded number");
    g_.define_counted(rule, body, least, greatest);
    body = g_.call(rule);
  }
  if (greatest == 0) return least == 0 ? g_.bytes("[]") : g_.nothing();
  return in_brackets("[", body, "]");
}

Result<std::optional<std::vector<const Json*>>> SchemaCompiler::finite_values(Schemas schemas, size_t depth) {
  using Values = std::vector<const Json*>;
  if (depth > kMaxFiniteDepth) return std::optional<Values>();
  std::vector<const Json*> lists;
  REDLINE_TRY(flatten(schemas, lists));
  if (has_false(schemas)) return std::optional(Values());
  REDLINE_ASSIGN(auto values, values_.values_of(schemas));
  if (!values && (types_of(schemas) & ~(kNull | kBoolean)) == 0 && lists.empty()) {
    Json all = Json::array();
    for (const Json& value : {Json(nullptr), Json(false), Json(true)}) {
      bool is_valid = true;
      for (const Json* schema : schemas) {
        REDLINE_ASSIGN(const bool valid, values_.validates(value, *schema));
        is_valid = is_valid && valid;
      }
      if (is_valid) all.push_back(value);
    }
    const Json* own = document_.own(std::move(all), schemas.empty() ? document_.root() : *schemas[0]);
    values.emplace();
    for (const Json& value : *own) values->push_back(&value);
  }
  if (values || lists.empty()) return values;
  Values all;
  for (const Json& branch : *lists[0]) {
    // Only the first list gives candidates. Its values are then checked with all schemas, and so with the other lists.
    REDLINE_ASSIGN(const auto some, finite_values({&branch}, depth + 1));
    if (!some || all.size() + some->size() > kMaxFiniteValues) return std::optional<Values>();
    for (const Json* value : *some) {
      bool is_valid = true;
      for (const Json* schema : schemas) {
        REDLINE_ASSIGN(const bool valid, values_.validates(*value, *schema));
        is_valid = is_valid && valid;
      }
      if (is_valid) all.push_back(value);
    }
  }
  return std::optional(all);
}

Result<std::optional<Grammar::Expr>> SchemaCompiler::unique_array(Schemas items, uint32_t least, uint32_t greatest) {
  constexpr size_t kMaxSets = 8;
  REDLINE_ASSIGN(const auto values, finite_values(std::move(items), 0));
  if (!values || values->size() > kMaxFiniteValues) return std::optional<Grammar::Expr>();
  std::vector<const Json*> distinct;
  for (const Json* value : *values)
    if (std::none_of(distinct.begin(), distinct.end(), [&](const Json* other) { return equals(*other, *value); }))
      distinct.push_back(value);
  const auto n = static_cast<uint32_t>(distinct.size());
  if (least > n) return std::optional(g_.nothing());
  greatest = std::min(greatest, n);
  Grammar::Graph graph;
  if (n <= kMaxSets) {
    // A state is the set of values that were used. The second half of the states is the same sets after a comma.
    graph.num_states = 2U << n;
    const uint32_t after_comma = 1U << n;
    for (uint32_t used = 0; used < after_comma; ++used) {
      const auto count = static_cast<uint32_t>(__builtin_popcount(used));
      if (count >= least && count <= greatest) graph.accepts.push_back(used);
      if (count >= greatest) continue;
      graph.add(used, used == 0 ? g_.empty() : comma(), used | after_comma);
      for (size_t i = 0; i < n; ++i)
        if (!(used >> i & 1U)) graph.add(used | after_comma, value_expression(*distinct[i]), used | 1U << i);
    }
    return std::optional(in_brackets("[", g_.graph(std::move(graph)), "]"));
  }
  // More values than that are allowed only in the order of their list. There are two states for each i: before value i
  // or a later one, and after value i.
  graph.num_states = 2 * n + 2;
  const auto before = [](uint32_t i) { return 1 + 2 * i; };
  graph.add(0, g_.empty(), before(0));
  graph.accepts.push_back(0);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t after = before(i) + 1;
    graph.add(before(i), value_expression(*distinct[i]), after, true);
    graph.add(before(i), g_.empty(), before(i + 1));
    graph.add(after, comma(), before(i + 1));
    graph.accepts.push_back(after);
  }
  const Grammar::Rule rule = g_.add_rule("distinct items");
  g_.define_counted(rule, g_.graph(std::move(graph)), least, greatest);
  return std::optional(in_brackets("[", g_.call(rule), "]"));
}

}  // namespace redline::json_schema
