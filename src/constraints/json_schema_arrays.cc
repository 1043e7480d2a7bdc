// Arrays of a JSON Schema: items with schemas of their own, then any number of others.
#include <algorithm>

#include "constraints/json_schema_compiler.h"

namespace redline::json_schema {
namespace {

constexpr size_t kMaxUniqueValues = 8;

}  // namespace

Result<Grammar::Expr> SchemaCompiler::array_of(const Schemas& schemas) {
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

Result<Grammar::Expr> SchemaCompiler::unique_array(const Schemas& schemas, const Json& place_of, size_t prefix,
                                                   uint32_t least, uint32_t greatest) {
  const char* what = "other than of up to 8 values of one enum is";
  if (prefix > 0) return document_.refused(place_of, "uniqueItems", what);
  Schemas items = items_at(schemas, 0);
  std::vector<const Json*> lists;
  REDLINE_TRY(flatten(items, lists));
  REDLINE_ASSIGN(const auto values, values_.values_of(items));
  if (!values || !lists.empty()) return document_.refused(place_of, "uniqueItems", what);
  std::vector<const Json*> distinct;
  for (const Json* value : *values)
    if (std::none_of(distinct.begin(), distinct.end(), [&](const Json* other) { return equals(*other, *value); }))
      distinct.push_back(value);
  if (distinct.size() > kMaxUniqueValues) return document_.refused(place_of, "uniqueItems", what);
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

}  // namespace redline::json_schema
