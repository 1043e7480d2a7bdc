// The filters of jinja2, with tojson as transformers defines it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja/builtins.h"
#include "text/jinja/json.h"
#include "text/jinja/methods.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"

namespace redline::jinja {
namespace {

using Values = std::span<const Value>;

// Arguments ------------------------------------------------------------------------------------------------------------

bool is_given(Value value) { return !value.is_missing(); }
bool is_given_and_true(Evaluation& e, Value value) { return is_given(value) && truthy(e, value); }

int64_t int_or(Evaluation& e, Value value, int64_t otherwise) {
  if (!is_given(value)) return otherwise;
  if (value.is_int()) return value.as_int();
  if (value.is_undefined()) fail_undefined(e, value);
  e.fail("'{}' object cannot be interpreted as an integer", type_name(value));
  return otherwise;
}

/// soft_str(): Markup stays what it is.
Value soft(Evaluation& e, Value value) { return to_string(e, value); }

Value method(Evaluation& e, Value object, const char* name, std::initializer_list<Value> values = {}) {
  const Value bound = own_attribute(e, object, name);
  if (e.failed()) return object;
  return bound.as_function()->call(e, *bound.as_function(), {{values.begin(), values.size()}, {}});
}

// Attributes by path: "a.b.0" ------------------------------------------------------------------------------------------

/// make_attrgetter(): lives in the arena, because lazy filters keep it.
struct Path {
  List* steps = nullptr;
  Value otherwise = Value::none();  ///< what takes the place of undefined values, unless none
  bool ignores_case = false;

  Value get(Evaluation& e, Value object) const {
    for (const Value step : steps->span()) {
      object = item(e, object, step);
      if (e.failed()) return object;
      if (object.is_undefined() && !otherwise.is_none()) object = otherwise;
    }
    return ignores_case && object.is_string() ? method(e, object, "lower") : object;
  }
};

Path path_of(Evaluation& e, Value attribute, bool ignores_case = false, Value otherwise = Value::none()) {
  std::vector<Value> steps;
  if (attribute.is_string()) {
    for (const std::string_view step : split_at(attribute.text(), ".", -1)) {
      const bool is_index = !step.empty() && step.size() < 18 && step.find_first_not_of("0123456789") == step.npos;
      steps.push_back(is_index ? Value::integer(std::stoll(std::string(step))) : e.string_in_place(step));
    }
  } else if (is_given(attribute) && !attribute.is_none()) {
    steps.push_back(attribute);
  }
  return {e.make_list(steps), otherwise, ignores_case};
}

// Text -----------------------------------------------------------------------------------------------------------------

Value upper(Evaluation& e, Value x, Values) { return method(e, soft(e, x), "upper"); }
Value lower(Evaluation& e, Value x, Values) { return method(e, soft(e, x), "lower"); }
Value capitalize(Evaluation& e, Value x, Values) { return method(e, soft(e, x), "capitalize"); }
Value trim(Evaluation& e, Value x, Values v) {
  return method(e, soft(e, x), "strip", {is_given(v[0]) ? v[0] : Value::none()});
}
Value center(Evaluation& e, Value x, Values v) {
  return method(e, soft(e, x), "center", {is_given(v[0]) ? v[0] : Value::integer(80)});
}
Value as_string(Evaluation& e, Value x, Values) { return soft(e, x); }

Value safe(Evaluation& e, Value x, Values) { return e.string_in_place(to_text(e, x), true); }
Value escape(Evaluation& e, Value x, Values) {
  if (x.is_markup()) return x;
  const std::string_view text = to_text(e, x);
  if (!e.charge_bytes(5 * text.size())) return x;
  return e.string_in_place(e.text(escape_html(text))->text, true);
}
Value force_escape(Evaluation& e, Value x, Values) {
  return escape(e, e.string_in_place(to_text(e, x)), {});
}

Value replace(Evaluation& e, Value x, Values v) {
  const std::string_view text = to_text(e, x), from = to_text(e, v[0]), to = to_text(e, v[1]);
  const int64_t most = is_given(v[2]) && !v[2].is_none() ? int_or(e, v[2], -1) : -1;
  if (e.failed() || !e.charge_bytes(replaced_bytes(text, from, to, most))) return x;
  return e.string(replaced(text, from, to, most));
}

Value title(Evaluation& e, Value x, Values) {
  const std::string_view text = to_text(e, x);
  if (!e.charge_bytes(4 * text.size())) return x;
  const auto splits = [](uint32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const bool is_gap = splits(next_char(text, pos));
    const size_t first_end = pos;
    while (pos < text.size()) {
      size_t next = pos;
      if (splits(next_char(text, next)) != is_gap) break;
      pos = next;
    }
    out += to_upper(text.substr(begin, first_end - begin)) + to_lower(text.substr(first_end, pos - first_end));
  }
  return e.string(out);
}

Value indent(Evaluation& e, Value x, Values v) {
  std::string by;
  if (v[0].is_string()) by = v[0].text();
  else {
    const int64_t width = int_or(e, v[0], 4);
    if (!e.charge_bytes(static_cast<size_t>(std::max<int64_t>(width, 0)))) return x;
    by.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (x.is_undefined()) return fail_undefined(e, x);
  if (!x.is_string()) return e.fail("indent: expected a string, got '{}'", type_name(x));
  const bool indents_blank = is_given_and_true(e, v[2]);
  const bool is_markup = x.is_markup();
  if (is_markup && v[0].is_markup() == false && v[0].is_string()) by = std::string(v[0].text());
  const std::string text = std::string(x.text()) + "\n";
  std::string out;
  if (is_given_and_true(e, v[1])) out += by;
  bool is_first = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!std::exchange(is_first, false)) {
      out += '\n';
      if (indents_blank || !line.empty()) out += by;
    }
    out += line;
    if (!e.charge(1 + static_cast<int64_t>(by.size() / 32))) return x;
    if (static_cast<int64_t>(out.size()) > e.limits().output_bytes && !e.charge_bytes(out.size())) return x;
  }
  return e.string_in_place(e.text(out)->text, is_markup);
}

Value truncate(Evaluation& e, Value x, Values v) {
  const int64_t most = int_or(e, v[0], 255), leeway = is_given(v[3]) && !v[3].is_none() ? int_or(e, v[3], 5) : 5;
  const Value end = is_given(v[2]) ? v[2] : e.string("...");
  const int64_t end_length = length(e, end);
  if (e.failed()) return x;
  if (most < end_length) return e.fail("truncate: expected length >= {}, got {}", end_length, most);
  if (leeway < 0) return e.fail("truncate: expected leeway >= 0, got {}", leeway);
  if (length(e, x) <= most + leeway) return x;
  if (e.failed()) return x;
  const Value kept = slice(e, x, Value::none(), Value::integer(most - end_length), Value::none());
  if (is_given_and_true(e, v[1])) return arithmetic(e, Arithmetic::kAdd, kept, end);
  if (!kept.is_string()) return e.fail("truncate: expected a string, got '{}'", type_name(x));
  return arithmetic(e, Arithmetic::kAdd, item(e, method(e, kept, "rsplit", {e.string(" "), Value::integer(1)}), Value::integer(0)), end);
}

Value wordcount(Evaluation& e, Value x, Values) {
  const std::string_view text = to_text(e, x);
  e.charge_bytes(text.size());
  int64_t words = 0;
  bool in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t c = next_char(text, pos);
    const bool is_word = c == '_' || is_alnum(c);
    if (is_word && !in_word) ++words;
    in_word = is_word;
  }
  return Value::integer(words);
}

Value format(Evaluation& e, Value x, const Args& args) {
  if (!args.positional.empty() && !args.keywords.empty())
    return e.fail("format: can't handle positional and keyword arguments at the same time");
  Value arguments = e.tuple(args.positional);
  if (!args.keywords.empty()) {
    Dict* named = e.make_dict();
    for (const auto& [name, value] : args.keywords) set(e, *named, e.string(name), value);
    arguments = Value::dict(named);
  }
  return percent_format(e, soft(e, x), arguments);
}

Value filesizeformat(Evaluation& e, Value x, Values v) {
  double bytes = 0;
  if (x.is_number()) bytes = x.as_double();
  else if (const auto parsed = x.is_string() ? parse_float(x.text()) : std::nullopt) bytes = *parsed;
  else return e.fail("filesizeformat: expected a number, got '{}'", type_name(x));
  const bool is_binary = is_given_and_true(e, v[0]);
  const double base = is_binary ? 1024 : 1000;
  if (bytes == 1) return e.string("1 Byte");
  if (bytes < base) return truncated(e, bytes), e.string(fmt::format("{} Bytes", static_cast<int64_t>(bytes)));
  const char* kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  const char* kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  double unit = base;
  for (int i = 0;; ++i) {
    unit *= base;
    if (bytes < unit || i == 7)
      return e.string(fmt::format("{:.1f} {}", base * bytes / unit, is_binary ? kBinary[i] : kDecimal[i]));
  }
}

std::string quoted_url(std::string_view text, bool is_query) {
  std::string out;
  for (const char c : text) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-' || c == '~';
    if ((is_plain && is_ascii(c)) || (c == '/' && !is_query)) out += c;
    else if (c == ' ' && is_query) out += '+';
    else out += fmt::format("%{:02X}", static_cast<uint8_t>(c));
  }
  return out;
}

Value urlencode(Evaluation& e, Value x, Values) {
  if (x.is_string() || !is_iterable(x)) {
    const std::string_view text = to_text(e, x);
    if (!e.charge_bytes(3 * text.size())) return x;
    return e.string(quoted_url(text, false));
  }
  if (x.is_dict()) x = Value::view(e.arena.make(View{x.as_dict(), View::Part::kItems}));
  std::string out;
  Iterator* pairs = iterate(e, x);
  Value pair;
  while (pairs && pairs->next(e, pair)) {
    std::vector<Value> parts;
    if (!collect(e, pair, parts)) break;
    if (parts.size() != 2) return e.fail("urlencode: expected pairs, got {} items", parts.size());
    if (!out.empty()) out += '&';
    out += quoted_url(to_text(e, parts[0]), true) + "=" + quoted_url(to_text(e, parts[1]), true);
    if (!e.charge_bytes(out.size())) break;
  }
  return e.string(out);
}

Value xmlattr(Evaluation& e, Value x, Values v) {
  if (!x.is_dict()) return x.is_undefined() ? fail_undefined(e, x) : e.fail("xmlattr: expected a dict");
  std::string out;
  for (const Entry& entry : x.as_dict()->span()) {
    if (entry.value.is_none() || entry.value.is_undefined()) continue;
    if (!entry.key.is_string()) return e.fail("xmlattr: expected strings as keys");
    if (entry.key.text().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos)
      return e.fail("xmlattr: invalid character in the attribute name '{}'", entry.key.text());
    if (!out.empty()) out += ' ';
    out += fmt::format("{}=\"{}\"", escape(e, entry.key, {}).text(), escape(e, entry.value, {}).text());
    if (!e.charge_bytes(out.size())) break;
  }
  const bool leads = !is_given(v[0]) || truthy(e, v[0]);
  return e.string(leads && !out.empty() ? " " + out : out);
}

// Numbers --------------------------------------------------------------------------------------------------------------

Value to_int(Evaluation& e, Value x, Values v) {
  const Value otherwise = is_given(v[0]) ? v[0] : Value::integer(0);
  if (x.is_int()) return Value::integer(x.as_int());
  if (x.is_undefined()) return fail_undefined(e, x);
  if (x.is(Kind::kBigInt)) return x;
  if (x.is(Kind::kFloat)) return std::isnan(x.as_double()) ? otherwise : truncated(e, x.as_double());
  if (!x.is_string()) return otherwise;
  const int64_t base = int_or(e, v[1], 10);
  if (e.failed()) return x;
  if (base == 0 || (base >= 2 && base <= 36))
    if (const auto value = parse_int(e, x.text(), static_cast<int>(base))) return *value;
  const auto number = parse_float(x.text());
  if (!number || !std::isfinite(*number)) return otherwise;
  return truncated(e, *number);
}

Value to_float(Evaluation& e, Value x, Values v) {
  const Value otherwise = is_given(v[0]) ? v[0] : Value::number(0);
  if (x.is_number()) return Value::number(x.as_double());
  if (x.is_undefined()) return fail_undefined(e, x);
  if (x.is(Kind::kBigInt)) return Value::number(std::strtod(std::string(x.text()).c_str(), nullptr));
  const auto number = x.is_string() ? parse_float(x.text()) : std::nullopt;
  return number ? Value::number(*number) : otherwise;
}

Value absolute(Evaluation& e, Value x, Values) {
  if (x.is(Kind::kFloat)) return Value::number(std::abs(x.as_double()));
  if (x.is_int()) return x.as_int() < 0 ? negate(e, x) : plus(e, x);
  return e.fail("bad operand type for abs(): '{}'", type_name(x));
}

/// Python's round(): half to even, of the exact value of the number.
Value rounded(Evaluation& e, Value x, int64_t digits) {
  if (x.is_int()) {
    if (digits >= 0) return Value::integer(x.as_int());
    if (digits < -18) return Value::integer(0);
    int64_t unit = 1;
    for (int64_t i = 0; i > digits; --i) unit *= 10;
    const Value down = arithmetic(e, Arithmetic::kFloorDiv, x, Value::integer(unit));
    const int64_t rest = x.as_int() - down.as_int() * unit;
    const bool goes_up = rest * 2 > unit || (rest * 2 == unit && down.as_int() % 2 != 0);
    return arithmetic(e, Arithmetic::kMul, Value::integer(down.as_int() + (goes_up ? 1 : 0)), Value::integer(unit));
  }
  const double value = x.as_double();
  if (!std::isfinite(value) || digits > 323) return x;
  if (digits < -308) return Value::number(std::copysign(0.0, value));
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return Value::number(std::nearbyint(value / unit) * unit);
  }
  char buffer[700];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(digits), value);
  return Value::number(std::strtod(buffer, nullptr));
}

Value round(Evaluation& e, Value x, Values v) {
  const std::string_view way = is_given(v[1]) ? (v[1].is_string() ? v[1].text() : "") : "common";
  if (way != "common" && way != "ceil" && way != "floor") return e.fail("round: method must be common, ceil or floor");
  if (x.is_undefined()) return fail_undefined(e, x);
  if (!x.is_number()) return e.fail("round: expected a number, got '{}'", type_name(x));
  if (way == "common") {
    if (is_given(v[0]) && v[0].is_none()) return x.is_int() ? plus(e, x) : truncated(e, std::nearbyint(x.as_double()));
    const int64_t digits = int_or(e, v[0], 0);
    return e.failed() ? x : rounded(e, x, digits);
  }
  const Value unit = arithmetic(e, Arithmetic::kPow, Value::integer(10), is_given(v[0]) ? v[0] : Value::integer(0));
  const Value scaled = arithmetic(e, Arithmetic::kMul, x, unit);
  if (e.failed()) return x;
  const Value whole = scaled.is_int() ? scaled
                                      : truncated(e, way == "ceil" ? std::ceil(scaled.as_double())
                                                                   : std::floor(scaled.as_double()));
  return e.failed() ? x : arithmetic(e, Arithmetic::kDiv, whole, unit);
}

// Collections ----------------------------------------------------------------------------------------------------------

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

/// Sorted by keys with the order of Python's sorted(); `reversed` keeps equal items in order too.
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
    keys.push_back(ignores_case && key.is_string() ? method(e, key, "lower") : key);
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

// Lazy filters: they take one item at a time, and an error in an item that nobody asks for does not occur ---------------

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

/// Arguments that outlive the call.
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

// Others ---------------------------------------------------------------------------------------------------------------

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

Value unsupported_filter(Evaluation& e, Value, const Args&) { return e.fail_unsupported("this filter is not supported"); }

// clang-format off
const FilterRow kFilters[] = {
    {"abs", {}, absolute},
    {"attr", {1, {"name"}}, get_attribute},
    {"batch", {1, {"linecount", "fill_with"}}, batch},
    {"capitalize", {}, capitalize},
    {"center", {0, {"width"}}, center},
    {"count", {}, get_length},
    {"d", {0, {"default_value", "boolean"}}, or_default},
    {"default", {0, {"default_value", "boolean"}}, or_default},
    {"dictsort", {0, {"case_sensitive", "by", "reverse"}}, dictsort},
    {"e", {}, escape},
    {"escape", {}, escape},
    {"filesizeformat", {0, {"binary"}}, filesizeformat},
    {"first", {}, first},
    {"float", {0, {"default"}}, to_float},
    {"forceescape", {}, force_escape},
    {"format", {}, nullptr, format},
    {"groupby", {1, {"attribute", "default", "case_sensitive"}}, groupby},
    {"indent", {0, {"width", "first", "blank"}}, indent},
    {"int", {0, {"default", "base"}}, to_int},
    {"items", {}, items_of},
    {"join", {0, {"d", "attribute"}}, join},
    {"last", {}, last},
    {"length", {}, get_length},
    {"list", {}, to_list},
    {"lower", {}, lower},
    {"map", {}, nullptr, map},
    {"max", {0, {"case_sensitive", "attribute"}}, extreme<true>},
    {"min", {0, {"case_sensitive", "attribute"}}, extreme<false>},
    {"pprint", {}, nullptr, unsupported_filter},
    {"random", {}, nullptr, unsupported_filter},
    {"reject", {}, nullptr, select<false, false>},
    {"rejectattr", {}, nullptr, select<false, true>},
    {"replace", {2, {"old", "new", "count"}}, replace},
    {"reverse", {}, reverse},
    {"round", {0, {"precision", "method"}}, round},
    {"safe", {}, safe},
    {"select", {}, nullptr, select<true, false>},
    {"selectattr", {}, nullptr, select<true, true>},
    {"slice", {1, {"slices", "fill_with"}}, slices},
    {"sort", {0, {"reverse", "case_sensitive", "attribute"}}, sort},
    {"string", {}, as_string},
    {"striptags", {}, nullptr, unsupported_filter},
    {"sum", {0, {"attribute", "start"}}, sum},
    {"title", {}, title},
    {"tojson", {0, {"ensure_ascii", "indent", "separators", "sort_keys"}}, tojson},
    {"trim", {0, {"chars"}}, trim},
    {"truncate", {0, {"length", "killwords", "end", "leeway"}}, truncate},
    {"unique", {0, {"case_sensitive", "attribute"}}, unique},
    {"upper", {}, upper},
    {"urlencode", {}, urlencode},
    {"urlize", {}, nullptr, unsupported_filter},
    {"wordcount", {}, wordcount},
    {"wordwrap", {}, nullptr, unsupported_filter},
    {"xmlattr", {0, {"autospace"}}, xmlattr},
};
// clang-format on

}  // namespace

const FilterRow* find_filter(std::string_view name) {
  const auto* row =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const FilterRow& f) { return f.name == name; });
  return row == std::end(kFilters) ? nullptr : row;
}

Value call_filter(Evaluation& e, const FilterRow& row, Value object, const Args& args) {
  if (row.call_all) return row.call_all(e, object, args);
  Value values[kMaxParameters];
  if (!bind_arguments(e, row.name, args, row.parameters, values)) return object;
  return row.call(e, object, {values, kMaxParameters});
}

}  // namespace redline::jinja
