// Filters of collections, tojson and default.
#include <algorithm>

#include "chat/jinja/filter_parts.h"
#include "chat/jinja/json.h"
#include "chat/jinja/python_text.h"

namespace redline::jinja {
namespace {

// Collections
// ----------------------------------------------------------------------------------------------------------

Value get_length(Evaluation& e, Value x, Values) { return Value::integer(length(e, x)); }

Value first(Evaluation& e, Value x, Values) {
  Iterator* items = iterate(e, x);
  Value value;
  if (items && items->next(e, value)) return value;
  return e.undefined("No first item, sequence was empty.");
}

Value last(Evaluation& e, Value x, Values) {
  Iterator* items = iterate_reversed(e, x);
  if (!items) return e.fail("'{}' object is not reversible", type_name(x));
  Value value;
  if (items->next(e, value)) return value;
  return e.undefined("No last item, sequence was empty.");
}

Value to_list(Evaluation& e, Value x, Values) {
  std::vector<Value> items;
  collect(e, x, items);
  return e.list(items);
}

Value reverse(Evaluation& e, Value x, Values) {
  if (x.is_string()) return slice(e, x, Value::none(), Value::none(), Value::integer(-1));
  if (Iterator* items = iterate_reversed(e, x)) return Value::iterator(items);
  std::vector<Value> items;
  if (!collect(e, x, items)) return x;
  std::reverse(items.begin(), items.end());
  return e.list(items);
}

Value join(Evaluation& e, Value x, Values v) {
  const bool has_attribute = is_given(v[1]) && !v[1].is_none();
  const Path path = path_of(e, v[1]);
  const std::string_view separator = is_given(v[0]) ? to_text(e, v[0]) : std::string_view();
  std::string out;
  bool is_first = true;
  Iterator* items = iterate(e, x);
  Value value;
  while (items && items->next(e, value)) {
    if (!std::exchange(is_first, false)) out += separator;
    append_text(e, out, has_attribute ? path.get(e, value) : value);
    if (static_cast<int64_t>(out.size()) > e.limits().output_bytes) e.charge_bytes(out.size());
    if (!e.charge(static_cast<int64_t>(separator.size() / 32))) break;
  }
  return e.string(out);
}

Value get_attribute(Evaluation& e, Value x, Values v) {
  if (!v[0].is_string()) return e.fail("attr: expected a name, got '{}'", type_name(v[0]));
  if (x.is_undefined()) return fail_undefined(e, x);
  const Value own = own_attribute(e, x, v[0].text());
  return own.is_missing() ? e.undefined_attribute(owner_name(x), v[0].text()) : own;
}

/// Sorts items by keys in the order of Python's sorted(). Equal items keep their order, also with `is_reversed`.
void sort_by(Evaluation& e, std::vector<Value>& items, const std::vector<Value>& keys, bool is_reversed) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return !e.failed() && (is_reversed ? less(e, keys[b], keys[a]) : less(e, keys[a], keys[b]));
  });
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(items[i]);
  items = std::move(sorted);
}

Value sort(Evaluation& e, Value x, Values v) {
  std::vector<Value> items, keys;
  if (!collect(e, x, items)) return x;
  const bool ignores_case = !is_given_and_true(e, v[1]);
  std::vector<Path> paths;
  if (v[2].is_string()) {
    for (const std::string_view part : split_at(v[2].text(), ",", -1))
      paths.push_back(path_of(e, e.string_in_place(part), ignores_case));
  } else {
    paths.push_back(path_of(e, v[2], ignores_case));
  }
  for (const Value each : items) {
    std::vector<Value> key;
    for (const Path& path : paths) key.push_back(path.get(e, each));
    keys.push_back(key.size() == 1 ? key[0] : e.list(key));
    if (e.failed()) return x;
  }
  if (keys.size() > 1 && paths.size() == 1)
    for (Value& key : keys) key = e.list(std::span(&key, 1));
  sort_by(e, items, keys, is_given_and_true(e, v[0]));
  return e.list(items);
}

Value dictsort(Evaluation& e, Value x, Values v) {
  const std::string_view by = is_given(v[1]) ? (v[1].is_string() ? v[1].text() : "") : "key";
  if (by != "key" && by != "value") return e.fail("dictsort: you can only sort by either \"key\" or \"value\"");
  if (x.is_undefined()) return fail_undefined(e, x);
  if (!x.is_dict()) return e.fail("dictsort: expected a dict, got '{}'", type_name(x));
  const bool ignores_case = !is_given_and_true(e, v[0]);
  std::vector<Value> items, keys;
  for (const Entry& entry : x.as_dict()->span()) {
    items.push_back(e.tuple({entry.key, entry.value}));
    const Value key = by == "key" ? entry.key : entry.value;
    keys.push_back(ignores_case && key.is_string() ? call_method(e, key, "lower") : key);
    if (e.failed()) return x;
  }
  sort_by(e, items, keys, is_given_and_true(e, v[2]));
  return e.list(items);
}

template <bool is_max>
Value extreme(Evaluation& e, Value x, Values v) {
  const Path path = path_of(e, v[1], !is_given_and_true(e, v[0]));
  Iterator* items = iterate(e, x);
  Value value, best, best_key;
  while (items && items->next(e, value)) {
    const Value key = path.get(e, value);
    if (e.failed()) return x;
    if (best.is_missing() || ordered(e, key, best_key, is_max ? ">" : "<")) {
      best = value;
      best_key = key;
    }
  }
  return best.is_missing() ? e.undefined("No aggregated item, sequence was empty.") : best;
}

Value sum(Evaluation& e, Value x, Values v) {
  const bool has_attribute = is_given(v[0]) && !v[0].is_none();
  const Path path = path_of(e, v[0]);
  Value total = is_given(v[1]) ? v[1] : Value::integer(0);
  if (total.is_string()) return e.fail("sum() can't sum strings");
  Iterator* items = iterate(e, x);
  Value value;
  while (items && items->next(e, value) && !e.failed())
    total = arithmetic(e, Arithmetic::kAdd, total, has_attribute ? path.get(e, value) : value);
  return total;
}

Value groupby(Evaluation& e, Value x, Values v) {
  const bool ignores_case = !is_given_and_true(e, v[2]);
  const Value otherwise = is_given(v[1]) ? v[1] : Value::none();
  const Path path = path_of(e, v[0], ignores_case, otherwise), exact = path_of(e, v[0], false, otherwise);
  std::vector<Value> items, keys;
  if (!collect(e, x, items)) return x;
  for (const Value each : items) {
    keys.push_back(path.get(e, each));
    if (e.failed()) return x;
  }
  sort_by(e, items, keys, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < items.size() && !e.failed();) {
    const Value key = path.get(e, items[begin]);
    size_t end = begin + 1;
    while (end < items.size() && !e.failed() && equal(e, path.get(e, items[end]), key)) ++end;
    const Value members = e.list(std::span(items).subspan(begin, end - begin));
    const Value group = e.tuple({ignores_case ? exact.get(e, items[begin]) : key, members});
    group.as_list()->is_group = true;
    groups.push_back(group);
    begin = end;
  }
  return e.list(groups);
}

// Lazy filters: they take one item at a time, and an error in an item that is never read does not occur
// ---------------

struct Batches final : Iterator {
  bool next(Evaluation& e, Value& out) override {
    std::vector<Value> batch;
    if (has_ahead) batch.push_back(ahead);
    has_ahead = false;
    Value each;
    while (!is_done) {
      if (!items->next(e, each)) {
        is_done = true;
      } else if (static_cast<int64_t>(batch.size()) == size) {
        ahead = each;
        has_ahead = true;
        break;
      } else {
        batch.push_back(each);
      }
    }
    if (e.failed() || (batch.empty() && !has_ahead)) return false;
    if (is_done && !fill.is_none() && static_cast<int64_t>(batch.size()) < size) {
      if (!e.charge(size)) return false;
      batch.resize(static_cast<size_t>(size), fill);
    }
    out = e.list(batch);
    return true;
  }
  Iterator* items = nullptr;
  int64_t size = 0;
  Value fill = Value::none();
  Value ahead;
  bool has_ahead = false, is_done = false;
};

Value batch(Evaluation& e, Value x, Values v) {
  Batches batches;
  batches.items = iterate(e, x);
  batches.size = int_or(e, v[0], 1);
  if (is_given(v[1])) batches.fill = v[1];
  return e.failed() ? x : Value::iterator(e.arena.make(batches));
}

Value slices(Evaluation& e, Value x, Values v) {
  std::vector<Value> items;
  const int64_t count = int_or(e, v[0], 1);
  if (!collect(e, x, items)) return x;
  if (count == 0) return e.fail("integer division or modulo by zero");
  const auto size = static_cast<int64_t>(items.size());
  std::vector<Value> out;
  size_t begin = 0;
  for (int64_t i = 0; i < count && e.charge(); ++i) {
    const bool has_extra = i < size % count;
    const size_t end = begin + static_cast<size_t>(size / count + (has_extra ? 1 : 0));
    std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(begin),
                            items.begin() + static_cast<std::ptrdiff_t>(end));
    if (is_given(v[1]) && !v[1].is_none() && !has_extra) part.push_back(v[1]);
    out.push_back(e.list(part));
    begin = end;
  }
  return Value::iterator(iterate(e, e.list(out)));
}

Value items_of(Evaluation& e, Value x, Values) {
  if (!x.is_dict() && !x.is_undefined()) return e.fail("Can only get item pairs from a mapping.");
  return Value::iterator(
      iterate(e, x.is_dict() ? Value::view(e.arena.make(View{x.as_dict(), View::Part::kItems})) : x));
}

struct Unique final : Iterator {
  bool next(Evaluation& e, Value& out) override {
    while (items->next(e, out)) {
      const Value key = path.get(e, out);
      if (e.failed() || find(e, *seen, key)) continue;
      set(e, *seen, key, Value::none());
      return !e.failed();
    }
    return false;
  }
  Iterator* items = nullptr;
  Dict* seen = nullptr;
  Path path;
};

Value unique(Evaluation& e, Value x, Values v) {
  Unique all;
  all.items = iterate(e, x);
  all.seen = e.make_dict();
  all.path = path_of(e, v[1], !is_given_and_true(e, v[0]));
  return e.failed() ? x : Value::iterator(e.arena.make(all));
}

/// Returns a copy of the arguments that outlives the call.
Args kept(Evaluation& e, const Args& args, size_t skip) {
  using Keyword = std::pair<std::string_view, Value>;
  const auto positional = args.positional.subspan(std::min(skip, args.positional.size()));
  Value* values = e.make_list(positional)->items;
  auto* keywords = static_cast<Keyword*>(e.arena.allocate(args.keywords.size() * sizeof(Keyword), alignof(Keyword)));
  std::uninitialized_copy(args.keywords.begin(), args.keywords.end(), keywords);
  return {{values, positional.size()}, {keywords, args.keywords.size()}};
}

struct Mapped final : Iterator {
  bool next(Evaluation& e, Value& out) override {
    Value each;
    if (!items->next(e, each)) return false;
    out = filter ? call_filter(e, *filter, each, args) : path.get(e, each);
    return !e.failed();
  }
  Iterator* items = nullptr;
  const FilterRow* filter = nullptr;
  Args args;
  Path path;
};

Value map(Evaluation& e, Value x, const Args& args) {
  Mapped mapped;
  if (!truthy(e, x)) return Value::iterator(iterate(e, Value::list(e.make_list({}))));
  Value attribute, otherwise = Value::none();
  bool has_attribute = false;
  if (args.positional.empty())
    for (const auto& [name, value] : args.keywords) has_attribute = has_attribute || name == "attribute";
  if (has_attribute) {
    for (const auto& [name, value] : args.keywords) {
      if (name == "attribute") attribute = value;
      else if (name == "default") otherwise = value;
      else return e.fail("map: unexpected keyword argument '{}'", name);
    }
    mapped.path = path_of(e, attribute, false, otherwise);
  } else {
    if (args.positional.empty()) return e.fail("map requires a filter argument");
    const Value name = args.positional[0];
    mapped.filter = name.is_string() ? find_filter(name.text()) : nullptr;
    if (!mapped.filter) return e.fail("No filter named '{}'.", to_text(e, name));
    mapped.args = kept(e, args, 1);
  }
  mapped.items = iterate(e, x);
  return e.failed() ? x : Value::iterator(e.arena.make(mapped));
}

struct Selected final : Iterator {
  bool next(Evaluation& e, Value& out) override {
    while (items->next(e, out)) {
      const Value tested = by_attribute ? path.get(e, out) : out;
      if (e.failed()) return false;
      const bool holds = test ? call_test(e, *test, tested, args) : truthy(e, tested);
      if (e.failed()) return false;
      if (holds == wanted) return true;
    }
    return false;
  }
  Iterator* items = nullptr;
  const TestRow* test = nullptr;
  Args args;
  Path path;
  bool by_attribute = false, wanted = true;
};

template <bool wanted, bool by_attribute>
Value select(Evaluation& e, Value x, const Args& args) {
  Selected selected;
  selected.wanted = wanted;
  selected.by_attribute = by_attribute;
  if (!truthy(e, x)) return Value::iterator(iterate(e, Value::list(e.make_list({}))));
  const size_t at = by_attribute ? 1 : 0;
  if (by_attribute) {
    if (args.positional.empty()) return e.fail("Missing parameter for attribute name");
    selected.path = path_of(e, args.positional[0]);
  }
  if (args.positional.size() > at) {
    const Value name = args.positional[at];
    selected.test = name.is_string() ? find_test(name.text()) : nullptr;
    if (!selected.test) return e.fail("No test named '{}'.", to_text(e, name));
    selected.args = kept(e, args, at + 1);
  }
  selected.items = iterate(e, x);
  return e.failed() ? x : Value::iterator(e.arena.make(selected));
}

// Others
// ---------------------------------------------------------------------------------------------------------------

Value or_default(Evaluation& e, Value x, Values v) {
  const bool is_absent = x.is_undefined() || (is_given_and_true(e, v[1]) && !truthy(e, x));
  if (!is_absent) return x;
  return is_given(v[0]) ? v[0] : e.string("");
}

Value tojson(Evaluation& e, Value x, Values v) {
  JsonStyle style;
  style.ensure_ascii = is_given_and_true(e, v[0]);
  style.sort_keys = is_given_and_true(e, v[3]);
  if (is_given(v[1]) && !v[1].is_none()) {
    style.is_indented = true;
    style.item_separator = ",";
    if (v[1].is_string()) {
      style.indent = v[1].text();
    } else {
      const int64_t width = std::max<int64_t>(int_or(e, v[1], 0), 0);
      if (width > 1000) return e.fail("tojson: the indent {} is too large", width);
      style.indent.assign(static_cast<size_t>(width), ' ');
    }
  }
  if (is_given(v[2]) && !v[2].is_none()) {
    std::vector<Value> separators;
    collect(e, v[2], separators);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
      return e.fail("tojson: separators are a pair of strings");
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  std::string out;
  if (!e.failed()) append_json(e, out, x, style);
  return e.string(out);
}

// clang-format off
const FilterRow kCollectionFilters[] = {
    {"attr", {1, {"name"}}, get_attribute},
    {"batch", {1, {"linecount", "fill_with"}}, batch},
    {"count", {}, get_length},
    {"d", {0, {"default_value", "boolean"}}, or_default},
    {"default", {0, {"default_value", "boolean"}}, or_default},
    {"dictsort", {0, {"case_sensitive", "by", "reverse"}}, dictsort},
    {"first", {}, first},
    {"groupby", {1, {"attribute", "default", "case_sensitive"}}, groupby},
    {"items", {}, items_of},
    {"join", {0, {"d", "attribute"}}, join},
    {"last", {}, last},
    {"length", {}, get_length},
    {"list", {}, to_list},
    {"map", {}, nullptr, map},
    {"max", {0, {"case_sensitive", "attribute"}}, extreme<true>},
    {"min", {0, {"case_sensitive", "attribute"}}, extreme<false>},
    {"reject", {}, nullptr, select<false, false>},
    {"rejectattr", {}, nullptr, select<false, true>},
    {"reverse", {}, reverse},
    {"select", {}, nullptr, select<true, false>},
    {"selectattr", {}, nullptr, select<true, true>},
    {"slice", {1, {"slices", "fill_with"}}, slices},
    {"sort", {0, {"reverse", "case_sensitive", "attribute"}}, sort},
    {"sum", {0, {"attribute", "start"}}, sum},
    {"tojson", {0, {"ensure_ascii", "indent", "separators", "sort_keys"}}, tojson},
    {"unique", {0, {"case_sensitive", "attribute"}}, unique},
};
// clang-format on

}  // namespace

std::span<const FilterRow> collection_filters() { return kCollectionFilters; }

}  // namespace redline::jinja
