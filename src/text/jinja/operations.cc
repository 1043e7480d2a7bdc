#include "text/jinja/operations.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "text/jinja/methods.h"
#include "text/jinja/objects.h"
#include "text/jinja/python_text.h"

namespace redline::jinja {
namespace {

constexpr double kTwo63 = 9223372036854775808.0;

Value too_large(Evaluation& e) { return e.fail_unsupported("integers of more than 64 bits are not supported"); }

// Iterators ------------------------------------------------------------------------------------------------------------

struct ListIterator final : Iterator {
  explicit ListIterator(std::span<const Value> s) : items(s) { type_name = "list_iterator"; }
  bool next(Evaluation& e, Value& item) override {
    if (at >= items.size() || !e.charge()) return false;
    item = items[at++];
    return true;
  }
  std::span<const Value> items;
  size_t at = 0;
};

struct TextIterator final : Iterator {
  explicit TextIterator(std::string_view t) : text(t) {}
  bool next(Evaluation& e, Value& item) override {
    if (at >= text.size() || !e.charge()) return false;
    const size_t begin = at;
    next_char(text, at);
    item = e.string_in_place(text.substr(begin, at - begin));
    return true;
  }
  std::string_view text;
  size_t at = 0;
};

struct DictIterator final : Iterator {
  DictIterator(const Dict* d, View::Part p, bool r) : dict(d), part(p), reversed(r) {}
  bool next(Evaluation& e, Value& item) override {
    if (at >= dict->size || !e.charge()) return false;
    const Entry& entry = dict->entries[reversed ? dict->size - 1 - at : at];
    ++at;
    item = part == View::Part::kKeys     ? entry.key
           : part == View::Part::kValues ? entry.value
                                         : e.tuple({entry.key, entry.value});
    return true;
  }
  const Dict* dict;
  View::Part part;
  bool reversed;
  uint32_t at = 0;
};

struct RangeIterator final : Iterator {
  RangeIterator(int64_t f, int64_t s, int64_t n) : first(f), step(s), count(n) {}
  bool next(Evaluation& e, Value& item) override {
    if (at >= count || !e.charge()) return false;
    item = Value::integer(first + at++ * step);
    return true;
  }
  int64_t first, step, count, at = 0;
};

// Order ----------------------------------------------------------------------------------------------------------------

enum class Order : uint8_t { kLess, kEqual, kGreater, kUnordered };

Order order_of_numbers(Value a, Value b) {
  if (a.is_int() && b.is_int())
    return a.as_int() < b.as_int() ? Order::kLess : a.as_int() > b.as_int() ? Order::kGreater : Order::kEqual;
  // long double holds every int64 and every double.
  const auto wide = [](Value v) {
    return v.is_int() ? static_cast<long double>(v.as_int()) : static_cast<long double>(v.as_double());
  };
  const long double x = wide(a), y = wide(b);
  return x < y ? Order::kLess : x > y ? Order::kGreater : x == y ? Order::kEqual : Order::kUnordered;
}

Value fail_order(Evaluation& e, Value a, Value b, std::string_view op) {
  if (a.is_undefined()) return fail_undefined(e, a);
  if (b.is_undefined()) return fail_undefined(e, b);
  return e.fail("'{}' is not supported between '{}' and '{}'", op, type_name(a), type_name(b));
}

Order order(Evaluation& e, Value a, Value b, std::string_view op) {
  const Nested nested(e);
  if (!nested || !e.charge()) return Order::kUnordered;
  if (a.is_number() && b.is_number()) return order_of_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    e.charge_bytes(std::min(a.text().size(), b.text().size()));
    const int c = a.text().compare(b.text());
    return c < 0 ? Order::kLess : c > 0 ? Order::kGreater : Order::kEqual;
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto x = a.as_list()->span(), y = b.as_list()->span();
    for (size_t i = 0; i < std::min(x.size(), y.size()) && !e.failed(); ++i)
      if (!equal(e, x[i], y[i])) return order(e, x[i], y[i], op);
    return x.size() < y.size() ? Order::kLess : x.size() > y.size() ? Order::kGreater : Order::kEqual;
  }
  if (a.is(Kind::kBigInt) || b.is(Kind::kBigInt)) too_large(e);
  fail_order(e, a, b, op);
  return Order::kUnordered;
}

// Hash -----------------------------------------------------------------------------------------------------------------

uint64_t mixed(uint64_t x) {
  x ^= x >> 33;
  x *= 0xFF51AFD7ED558CCDull;
  x ^= x >> 33;
  return x;
}

uint64_t hash_text(std::string_view text) { return std::hash<std::string_view>()(text); }

void grow(Evaluation& e, Dict& dict) {
  const uint32_t capacity = std::max<uint32_t>(4, 2 * dict.capacity);
  if (!e.charge(3 * static_cast<int64_t>(capacity))) return;
  Entry* entries = e.arena.array<Entry>(capacity);
  std::copy_n(dict.entries, dict.size, entries);
  dict.entries = entries;
  dict.capacity = capacity;
  if (capacity <= 8) return;
  dict.index_size = 2 * capacity;
  dict.index = e.arena.array<uint32_t>(dict.index_size);
  std::fill_n(dict.index, dict.index_size, 0);
  for (uint32_t i = 0; i < dict.size; ++i) {
    uint64_t at = dict.entries[i].hash;
    while (dict.index[at & (dict.index_size - 1)]) ++at;
    dict.index[at & (dict.index_size - 1)] = i + 1;
  }
}

template <class Equal>
Entry* find_entry(const Dict& dict, uint64_t hash, Equal&& is_equal) {
  if (!dict.index) {
    for (uint32_t i = 0; i < dict.size; ++i)
      if (dict.entries[i].hash == hash && is_equal(dict.entries[i].key)) return &dict.entries[i];
    return nullptr;
  }
  for (uint64_t at = hash;; ++at) {
    const uint32_t i = dict.index[at & (dict.index_size - 1)];
    if (i == 0) return nullptr;
    if (dict.entries[i - 1].hash == hash && is_equal(dict.entries[i - 1].key)) return &dict.entries[i - 1];
  }
}

// Arithmetic -----------------------------------------------------------------------------------------------------------

std::string_view symbol(Arithmetic op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

Value fail_operands(Evaluation& e, Arithmetic op, Value a, Value b) {
  if (a.is_undefined()) return fail_undefined(e, a);
  if (b.is_undefined()) return fail_undefined(e, b);
  if (a.is(Kind::kBigInt) || b.is(Kind::kBigInt)) return too_large(e);
  return e.fail("unsupported operand types for {}: '{}' and '{}'", symbol(op), type_name(a), type_name(b));
}

Value power(Evaluation& e, Value a, Value b) {
  if (a.is_int() && b.is_int() && b.as_int() >= 0) {
    int64_t result = 1, base = a.as_int();
    for (int64_t n = b.as_int(); n > 0; n >>= 1) {
      if ((n & 1) && __builtin_mul_overflow(result, base, &result)) return too_large(e);
      if (n > 1 && __builtin_mul_overflow(base, base, &base)) return too_large(e);
    }
    return Value::integer(result);
  }
  const double x = a.as_double(), y = b.as_double();
  if (x == 0 && y < 0) return e.fail("0.0 cannot be raised to a negative power");
  if (x < 0 && std::isfinite(y) && y != std::floor(y)) return e.fail_unsupported("complex numbers are not supported");
  const double result = std::pow(x, y);
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) return e.fail("the result of ** is out of range");
  return Value::number(result);
}

Value int_arithmetic(Evaluation& e, Arithmetic op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Arithmetic::kAdd: return __builtin_add_overflow(a, b, &result) ? too_large(e) : Value::integer(result);
    case Arithmetic::kSub: return __builtin_sub_overflow(a, b, &result) ? too_large(e) : Value::integer(result);
    case Arithmetic::kMul: return __builtin_mul_overflow(a, b, &result) ? too_large(e) : Value::integer(result);
    default: break;
  }
  if (b == 0) return e.fail("division by zero");
  if (op == Arithmetic::kDiv)
    return Value::number(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  if (a == INT64_MIN && b == -1) return op == Arithmetic::kMod ? Value::integer(0) : too_large(e);
  // Rounded down; the remainder has the sign of the divisor.
  const bool rounds = a % b != 0 && (a < 0) != (b < 0);
  return Value::integer(op == Arithmetic::kMod ? a % b + (rounds ? b : 0) : a / b - (rounds ? 1 : 0));
}

Value float_arithmetic(Evaluation& e, Arithmetic op, double a, double b) {
  switch (op) {
    case Arithmetic::kAdd: return Value::number(a + b);
    case Arithmetic::kSub: return Value::number(a - b);
    case Arithmetic::kMul: return Value::number(a * b);
    default: break;
  }
  if (b == 0) return e.fail("float division by zero");
  if (op == Arithmetic::kDiv) return Value::number(a / b);
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (op == Arithmetic::kMod) return Value::number(remainder);
  if (quotient == 0) return Value::number(std::copysign(0.0, a / b));
  const double floored = std::floor(quotient);
  return Value::number(quotient - floored > 0.5 ? floored + 1 : floored);
}

Value repeated(Evaluation& e, Value sequence, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (sequence.is_string()) {
    const std::string_view text = sequence.text();
    if (static_cast<double>(text.size()) * static_cast<double>(count) > static_cast<double>(e.limits().output_bytes)) {
      e.charge_bytes(static_cast<size_t>(e.limits().output_bytes) + 1);
      return sequence;
    }
    std::string out;
    out.reserve(text.size() * static_cast<size_t>(count));
    for (int64_t i = 0; i < count && !text.empty(); ++i) out += text;
    const Str* made = e.text(out);
    return Value::string(e.arena.make(Str{made->text, -1, sequence.is_markup()}));
  }
  const auto items = sequence.as_list()->span();
  if (static_cast<double>(items.size()) * static_cast<double>(count) > static_cast<double>(e.limits().steps)) {
    e.charge(e.limits().steps + 1);
    return sequence;
  }
  if (!e.charge(static_cast<int64_t>(items.size()) * count)) return sequence;
  std::vector<Value> out;
  for (int64_t i = 0; i < count && !items.empty(); ++i) out.insert(out.end(), items.begin(), items.end());
  return sequence.is(Kind::kList) ? e.list(out) : e.tuple(out);
}

Value joined(Evaluation& e, Value a, Value b) {
  if (a.is_markup() != b.is_markup()) {  // Markup escapes what is added to it
    std::string out = a.is_markup() ? std::string(a.text()) : escape_html(a.text());
    out += b.is_markup() ? std::string(b.text()) : escape_html(b.text());
    return Value::string(e.arena.make(Str{e.text(out)->text, -1, true}));
  }
  const size_t bytes = a.text().size() + b.text().size();
  if (!e.charge_bytes(bytes)) return a;
  char* place = e.arena.array<char>(bytes);
  std::copy(b.text().begin(), b.text().end(), std::copy(a.text().begin(), a.text().end(), place));
  return e.string_in_place({place, bytes}, a.is_markup());
}

// Indexes --------------------------------------------------------------------------------------------------------------

/// The bounds of a slice over `size` items: first, count and step.
struct SliceBounds {
  int64_t first = 0, count = 0, step = 1;
};
std::optional<SliceBounds> slice_bounds(Evaluation& e, int64_t size, Value start, Value stop, Value step) {
  for (const Value v : {start, stop, step}) {
    if (v.is_none() || v.is_int()) continue;
    if (v.is(Kind::kBigInt)) too_large(e);
    e.fail("slice indices must be integers or None");
    return std::nullopt;
  }
  SliceBounds bounds;
  bounds.step = step.is_none() ? 1 : step.as_int();
  if (bounds.step == 0) {
    e.fail("slice step cannot be zero");
    return std::nullopt;
  }
  if (bounds.step == INT64_MIN) bounds.step = -INT64_MAX;
  const bool is_forward = bounds.step > 0;
  const auto clamped = [&](Value v, int64_t otherwise) {
    if (v.is_none()) return otherwise;
    int64_t at = v.as_int();
    if (at < 0) at += size;
    return std::clamp<int64_t>(at, is_forward ? 0 : -1, is_forward ? size : size - 1);
  };
  bounds.first = clamped(start, is_forward ? 0 : size - 1);
  const int64_t last = clamped(stop, is_forward ? size : -1);
  bounds.count = Range{bounds.first, last, bounds.step}.size();
  return bounds;
}

Value char_at(Evaluation& e, Value string, int64_t index) {
  const Str* s = string.as_str();
  const bool is_ascii = length_of(*s) == static_cast<int64_t>(s->text.size());
  if (!is_ascii && !e.charge(index / 32)) return string;
  const size_t begin = is_ascii ? static_cast<size_t>(index) : char_offset(s->text, index);
  size_t end = begin;
  next_char(s->text, end);
  return e.string_in_place(s->text.substr(begin, end - begin), s->is_markup);
}

}  // namespace

std::string_view type_name(Value value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt:
    case Kind::kBigInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return value.is_markup() ? "Markup" : "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kView: {
      constexpr std::string_view kNames[] = {"dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<size_t>(value.as_view()->part)];
    }
    case Kind::kRange: return "range";
    case Kind::kIterator: return value.as_iterator()->type_name;
    case Kind::kNamespace: return "Namespace";
    case Kind::kFunction: return "builtin_function_or_method";
    case Kind::kMacro: return "Macro";
    case Kind::kLoop: return "LoopContext";
    case Kind::kCycler: return "Cycler";
    case Kind::kJoiner: return "Joiner";
  }
  return "";
}

std::string_view owner_name(Value value) {
  switch (value.kind()) {
    case Kind::kNone: return "None";
    case Kind::kBool: return "bool object";
    case Kind::kInt:
    case Kind::kBigInt: return "int object";
    case Kind::kFloat: return "float object";
    case Kind::kString: return "str object";
    case Kind::kList: return "list object";
    case Kind::kTuple: return "tuple object";
    case Kind::kDict: return "dict object";
    case Kind::kNamespace: return "namespace object";
    case Kind::kLoop: return "loop object";
    case Kind::kMacro: return "macro object";
    default: return type_name(value);
  }
}

Value fail_undefined(Evaluation& e, Value value) {
  const Undefined& why = *value.as_undefined();
  if (!why.hint.empty()) return e.fail("{}", why.hint);
  if (why.owner.empty()) return e.fail("'{}' is undefined", why.name);
  return e.fail("'{}' has no attribute '{}'", why.owner, why.name);
}

bool truthy(Evaluation& e, Value value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return value.as_int() != 0;
    case Kind::kFloat: return value.as_double() != 0;
    case Kind::kString: return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple: return value.as_list()->size > 0;
    case Kind::kDict: return value.as_dict()->size > 0;
    case Kind::kView: return value.as_view()->dict->size > 0;
    case Kind::kRange: return value.as_range()->size() > 0;
    case Kind::kLoop: return loop_length(e, *value.as_loop()) > 0;
    default: return true;
  }
}

bool identical(Value a, Value b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone: return true;
    case Kind::kBool:
    case Kind::kInt: return a.as_int() == b.as_int();
    case Kind::kFloat: return a.as_double() == b.as_double();
    case Kind::kUndefined: return a.as_undefined() == b.as_undefined();
    case Kind::kString: return a.as_str() == b.as_str() || a.text() == b.text();  // CPython shares most equal strings
    default: return a.address() == b.address();
  }
}

bool equal(Evaluation& e, Value a, Value b) {
  const Nested nested(e);
  if (!nested || !e.charge()) return false;
  if (a.is_number() && b.is_number()) return order_of_numbers(a, b) == Order::kEqual;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
    case Kind::kUndefined: return true;
    case Kind::kString: return e.charge_bytes(a.text().size()) && a.text() == b.text();
    case Kind::kBigInt: return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple: {
      const auto x = a.as_list()->span(), y = b.as_list()->span();
      return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), [&](Value l, Value r) {
               return !e.failed() && equal(e, l, r);
             });
    }
    case Kind::kDict: {
      const Dict &x = *a.as_dict(), &y = *b.as_dict();
      if (x.size != y.size) return false;
      for (const Entry& entry : x.span()) {
        if (e.failed()) return false;
        const Value* other = find(e, y, entry.key);
        if (!other || !equal(e, entry.value, *other)) return false;
      }
      return true;
    }
    case Kind::kView: {
      const View &x = *a.as_view(), &y = *b.as_view();
      if (x.part != y.part || x.part == View::Part::kValues) return a.address() == b.address();
      if (x.dict->size != y.dict->size) return false;
      for (const Entry& entry : x.dict->span()) {
        const Value* other = find(e, *y.dict, entry.key);
        if (!other || (x.part == View::Part::kItems && !equal(e, entry.value, *other))) return false;
      }
      return true;
    }
    case Kind::kRange: {
      const Range &x = *a.as_range(), &y = *b.as_range();
      return x.size() == y.size() && (x.size() == 0 || (x.start == y.start && (x.size() == 1 || x.step == y.step)));
    }
    default: return a.address() == b.address();
  }
}

bool less(Evaluation& e, Value a, Value b) { return ordered(e, a, b, "<"); }

bool ordered(Evaluation& e, Value a, Value b, std::string_view op) {
  const Order o = order(e, a, b, op);
  if (o == Order::kUnordered) return false;
  if (op == "<") return o == Order::kLess;
  if (op == "<=") return o != Order::kGreater;
  if (op == ">") return o == Order::kGreater;
  return o != Order::kLess;
}

bool contains(Evaluation& e, Value container, Value item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        e.fail("'in <string>' needs a string on its left, not '{}'", type_name(item));
        return false;
      }
      return e.charge_bytes(container.text().size()) && container.text().find(item.text()) != std::string_view::npos;
    case Kind::kDict: return find(e, *container.as_dict(), item) != nullptr;
    case Kind::kRange: {
      const Range& r = *container.as_range();
      if (item.is(Kind::kFloat) && item.as_double() == std::floor(item.as_double()) &&
          std::abs(item.as_double()) < kTwo63)
        item = Value::integer(static_cast<int64_t>(item.as_double()));
      if (!item.is_int() || r.size() == 0) return false;
      const int64_t last = r.start + (r.size() - 1) * r.step;
      const int64_t at = item.as_int();
      return at >= std::min(r.start, last) && at <= std::max(r.start, last) && (at - r.start) % r.step == 0;
    }
    default: break;
  }
  if (container.is(Kind::kView) && container.as_view()->part == View::Part::kKeys)
    return find(e, *container.as_view()->dict, item) != nullptr;
  if (!is_iterable(container)) {
    e.fail("argument of type '{}' is not iterable", type_name(container));
    return false;
  }
  Iterator* items = iterate(e, container);
  Value each;
  while (items && items->next(e, each))
    if (equal(e, each, item)) return true;
  return false;
}

Value arithmetic(Evaluation& e, Arithmetic op, Value a, Value b) {
  if (a.is_number() && b.is_number()) {
    if (op == Arithmetic::kPow) return power(e, a, b);
    if (a.is_int() && b.is_int()) return int_arithmetic(e, op, a.as_int(), b.as_int());
    return float_arithmetic(e, op, a.as_double(), b.as_double());
  }
  if (a.is_undefined() || b.is_undefined()) {
    if (!(op == Arithmetic::kMod && a.is_string())) return fail_operands(e, op, a, b);
  }
  if (op == Arithmetic::kAdd) {
    if (a.is_string() && b.is_string()) return joined(e, a, b);
    if (a.is_sequence() && a.kind() == b.kind()) {
      const auto x = a.as_list()->span(), y = b.as_list()->span();
      std::vector<Value> items(x.begin(), x.end());
      items.insert(items.end(), y.begin(), y.end());
      return a.is(Kind::kList) ? e.list(items) : e.tuple(items);
    }
    // markupsafe adds nothing but strings; Python says so for all others.
    if (a.is_string()) return e.fail("can only concatenate str (not \"{}\") to str", type_name(b));
  }
  if (op == Arithmetic::kMul) {
    if ((a.is_string() || a.is_sequence()) && b.is_int()) return repeated(e, a, b.as_int());
    if ((b.is_string() || b.is_sequence()) && a.is_int()) return repeated(e, b, a.as_int());
  }
  if (op == Arithmetic::kMod && a.is_string()) return percent_format(e, a, b);
  return fail_operands(e, op, a, b);
}

Value negate(Evaluation& e, Value a) {
  if (a.is(Kind::kFloat)) return Value::number(-a.as_double());
  if (a.is_int()) return a.as_int() == INT64_MIN ? too_large(e) : Value::integer(-a.as_int());
  if (a.is_undefined()) return fail_undefined(e, a);
  if (a.is(Kind::kBigInt)) return too_large(e);
  return e.fail("bad operand type for unary -: '{}'", type_name(a));
}

Value plus(Evaluation& e, Value a) {
  if (a.is(Kind::kFloat)) return a;
  if (a.is_int()) return Value::integer(a.as_int());
  if (a.is_undefined()) return fail_undefined(e, a);
  return e.fail("bad operand type for unary +: '{}'", type_name(a));
}

// Text -----------------------------------------------------------------------------------------------------------------

namespace {

void append_items(Evaluation& e, std::string& out, std::span<const Value> items) {
  bool is_first = true;
  for (const Value item : items) {
    if (e.failed()) return;
    if (!std::exchange(is_first, false)) out += ", ";
    append_repr(e, out, item);
  }
}

void append_dict(Evaluation& e, std::string& out, const Dict& dict) {
  out += '{';
  bool is_first = true;
  for (const Entry& entry : dict.span()) {
    if (e.failed()) return;
    if (!std::exchange(is_first, false)) out += ", ";
    append_repr(e, out, entry.key);
    out += ": ";
    append_repr(e, out, entry.value);
  }
  out += '}';
}

}  // namespace

void append_repr(Evaluation& e, std::string& out, Value value) {
  const Nested nested(e);
  if (!nested || !e.charge()) return;
  if (static_cast<int64_t>(out.size()) > e.limits().output_bytes) {
    e.charge_bytes(out.size());
    return;
  }
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined: out += "Undefined"; break;
    case Kind::kNone: out += "None"; break;
    case Kind::kBool: out += value.as_bool() ? "True" : "False"; break;
    case Kind::kInt: out += fmt::format("{}", value.as_int()); break;
    case Kind::kBigInt: out += value.text(); break;
    case Kind::kFloat: out += float_repr(value.as_double()); break;
    case Kind::kString:
      if (!e.charge_bytes(value.text().size())) return;
      if (value.is_markup()) out += "Markup(";
      append_repr(out, value.text());
      if (value.is_markup()) out += ')';
      break;
    case Kind::kList:
      out += '[';
      append_items(e, out, value.as_list()->span());
      out += ']';
      break;
    case Kind::kTuple:
      out += '(';
      append_items(e, out, value.as_list()->span());
      out += value.as_list()->size == 1 ? ",)" : ")";
      break;
    case Kind::kDict: append_dict(e, out, *value.as_dict()); break;
    case Kind::kView: {
      out += fmt::format("{}([", type_name(value));
      std::vector<Value> items;
      collect(e, value, items);
      append_items(e, out, items);
      out += "])";
      break;
    }
    case Kind::kRange: {
      const Range& r = *value.as_range();
      out += r.step == 1 ? fmt::format("range({}, {})", r.start, r.stop)
                         : fmt::format("range({}, {}, {})", r.start, r.stop, r.step);
      break;
    }
    case Kind::kNamespace:
      out += "<Namespace ";
      append_dict(e, out, *value.as_names()->attributes);
      out += '>';
      break;
    case Kind::kMacro: out += macro_repr(*value.as_macro()); break;
    case Kind::kLoop:
      out += fmt::format("<LoopContext {}/{}>", value.as_loop()->index0 + 1, loop_length(e, *value.as_loop()));
      break;
    // Python prints addresses of these.
    case Kind::kIterator: out += fmt::format("<{} object>", type_name(value)); break;
    case Kind::kFunction: out += fmt::format("<function {}>", value.as_function()->name); break;
    case Kind::kCycler: out += "<Cycler object>"; break;
    case Kind::kJoiner: out += "<Joiner object>"; break;
  }
}

void append_text(Evaluation& e, std::string& out, Value value) {
  if (value.is_string()) {
    out += value.text();
  } else if (!value.is_undefined()) {
    append_repr(e, out, value);
  }
}

std::string_view to_text(Evaluation& e, Value value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return {};
  std::string out;
  append_repr(e, out, value);
  return e.text(out)->text;
}

Value to_string(Evaluation& e, Value value) {
  return value.is_string() ? value : e.string_in_place(to_text(e, value));
}

int64_t length_of(const Str& text) {
  if (text.length < 0) text.length = count_chars(text.text);
  return text.length;
}

bool has_length(Value value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kRange:
    case Kind::kLoop: return true;
    default: return false;
  }
}

int64_t length(Evaluation& e, Value value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: return length_of(*value.as_str());
    case Kind::kList:
    case Kind::kTuple: return static_cast<int64_t>(value.as_list()->size);
    case Kind::kDict: return value.as_dict()->size;
    case Kind::kView: return value.as_view()->dict->size;
    case Kind::kRange: return value.as_range()->size();
    case Kind::kLoop: return loop_length(e, *value.as_loop());
    default: e.fail("object of type '{}' has no length", type_name(value)); return 0;
  }
}

bool is_callable(Value value) {
  // Undefined has __call__, which raises.
  return value.is_undefined() || value.is(Kind::kFunction) || value.is(Kind::kMacro) || value.is(Kind::kLoop) ||
         value.is(Kind::kJoiner);
}

// Iteration ------------------------------------------------------------------------------------------------------------

bool is_iterable(Value value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kLoop: return true;
    default: return false;
  }
}

Iterator* iterate(Evaluation& e, Value value) {
  switch (value.kind()) {
    case Kind::kUndefined: return e.arena.make(ListIterator({}));
    case Kind::kString: return e.arena.make(TextIterator(value.text()));
    case Kind::kList:
    case Kind::kTuple: return e.arena.make(ListIterator(value.as_list()->span()));
    case Kind::kDict: return e.arena.make(DictIterator(value.as_dict(), View::Part::kKeys, false));
    case Kind::kView: return e.arena.make(DictIterator(value.as_view()->dict, value.as_view()->part, false));
    case Kind::kRange: {
      const Range& r = *value.as_range();
      return e.arena.make(RangeIterator(r.start, r.step, r.size()));
    }
    case Kind::kIterator: return value.as_iterator();
    case Kind::kLoop: e.fail_unsupported("iterating over 'loop' is not supported"); return nullptr;
    default: e.fail("'{}' object is not iterable", type_name(value)); return nullptr;
  }
}

Iterator* iterate_reversed(Evaluation& e, Value value) {
  switch (value.kind()) {
    case Kind::kUndefined: return e.arena.make(ListIterator({}));
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple: {
      std::vector<Value> items;
      collect(e, value, items);
      std::reverse(items.begin(), items.end());
      return e.arena.make(ListIterator(e.make_list(items)->span()));
    }
    case Kind::kDict: return e.arena.make(DictIterator(value.as_dict(), View::Part::kKeys, true));
    case Kind::kView: return e.arena.make(DictIterator(value.as_view()->dict, value.as_view()->part, true));
    case Kind::kRange: {
      const Range& r = *value.as_range();
      return e.arena.make(RangeIterator(r.start + (r.size() - 1) * r.step, -r.step, r.size()));
    }
    default: return nullptr;
  }
}

bool collect(Evaluation& e, Value value, std::vector<Value>& items) {
  Iterator* iterator = iterate(e, value);
  Value item;
  while (iterator && iterator->next(e, item)) items.push_back(item);
  return !e.failed();
}

// Attributes and items -------------------------------------------------------------------------------------------------

Value own_attribute(Evaluation& e, Value object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kNamespace: {
      const Value* value = find(*object.as_names()->attributes, name);
      return value ? *value : Value::missing();
    }
    case Kind::kLoop: return loop_attribute(e, *object.as_loop(), name);
    case Kind::kMacro: return macro_attribute(e, *object.as_macro(), name);
    default: return find_method(e, object, name);
  }
}

Value attribute(Evaluation& e, Value object, std::string_view name) {
  if (object.is_undefined()) return fail_undefined(e, object);
  if (const Value own = own_attribute(e, object, name); !own.is_missing()) return own;
  if (object.is_dict())
    if (const Value* value = find(*object.as_dict(), name)) return *value;
  return e.undefined_attribute(owner_name(object), name);
}

Value item(Evaluation& e, Value object, Value index) {
  if (object.is_undefined()) return fail_undefined(e, object);
  if (object.is_dict()) {
    if (is_hashable(index))
      if (const Value* value = find(e, *object.as_dict(), index)) return *value;
  } else if (index.is_int()) {
    const bool has_items = object.is_sequence() || object.is_string() || object.is(Kind::kRange);
    const int64_t size = has_items ? length(e, object) : 0;
    const int64_t at = index.as_int() < 0 ? index.as_int() + size : index.as_int();
    if (at >= 0 && at < size) {
      if (object.is_sequence()) return object.as_list()->items[at];
      if (object.is_string()) return char_at(e, object, at);
      return Value::integer(object.as_range()->start + at * object.as_range()->step);
    }
  }
  if (index.is_string()) {
    if (const Value own = own_attribute(e, object, index.text()); !own.is_missing()) return own;
    return e.undefined_attribute(owner_name(object), index.text());
  }
  return e.undefined_attribute(owner_name(object), to_text(e, index));
}

Value slice(Evaluation& e, Value object, Value start, Value stop, Value step) {
  if (object.is_undefined()) return fail_undefined(e, object);
  if (!object.is_sequence() && !object.is_string() && !object.is(Kind::kRange))
    return e.fail("'{}' object cannot be sliced", type_name(object));
  const auto bounds = slice_bounds(e, length(e, object), start, stop, step);
  if (!bounds) return object;
  const auto [first, count, stride] = *bounds;
  if (object.is(Kind::kRange)) {
    const Range& r = *object.as_range();
    return Value::range(e.arena.make(Range{r.start + first * r.step, r.start + (first + count * stride) * r.step,
                                           r.step * stride}));
  }
  if (!e.charge(count)) return object;
  if (object.is_sequence()) {
    std::vector<Value> items;
    items.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) items.push_back(object.as_list()->items[first + i * stride]);
    return object.is(Kind::kList) ? e.list(items) : e.tuple(items);
  }
  const std::string_view text = object.text();
  const bool is_ascii = length_of(*object.as_str()) == static_cast<int64_t>(text.size());
  if (count == 0) return e.string_in_place({}, object.is_markup());
  if (stride == 1) {
    const size_t begin = is_ascii ? static_cast<size_t>(first) : char_offset(text, first);
    const size_t bytes = is_ascii ? static_cast<size_t>(count) : char_offset(text.substr(begin), count);
    return e.string_in_place(text.substr(begin, bytes), object.is_markup());
  }
  std::vector<std::string_view> chars;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    next_char(text, pos);
    chars.push_back(text.substr(begin, pos - begin));
  }
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += chars[static_cast<size_t>(first + i * stride)];
  return e.string_in_place(e.text(out)->text, object.is_markup());
}

// Dicts ----------------------------------------------------------------------------------------------------------------

bool is_hashable(Value value) {
  if (value.is(Kind::kTuple)) {
    const auto items = value.as_list()->span();  // tuples in it are left to hash(), which bounds their nesting
    return std::none_of(items.begin(), items.end(), [](Value v) { return !v.is(Kind::kTuple) && !is_hashable(v); });
  }
  if (value.is(Kind::kView)) return value.as_view()->part == View::Part::kValues;
  return !value.is(Kind::kList) && !value.is_dict();
}

uint64_t hash(Evaluation& e, Value value) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt: return mixed(static_cast<uint64_t>(value.as_int()));
    case Kind::kFloat: {
      const double d = value.as_double();
      if (d == std::floor(d) && std::abs(d) < kTwo63) return mixed(static_cast<uint64_t>(static_cast<int64_t>(d)));
      return std::hash<double>()(d);
    }
    case Kind::kString:
    case Kind::kBigInt: e.charge_bytes(value.text().size()); return hash_text(value.text());
    case Kind::kTuple: {
      const Nested nested(e);
      uint64_t sum = 7;
      for (const Value item : value.as_list()->span()) {
        if (!nested || !e.charge()) break;
        sum = mixed(sum * 31 + hash(e, item));
      }
      return sum;
    }
    case Kind::kNone:
    case Kind::kUndefined: return 1;
    case Kind::kList:
    case Kind::kDict: e.fail("unhashable type: '{}'", type_name(value)); return 0;
    case Kind::kRange: return mixed(static_cast<uint64_t>(value.as_range()->size()));
    default: return mixed(reinterpret_cast<uintptr_t>(value.address()));
  }
}

const Value* find(Evaluation& e, const Dict& dict, Value key) {
  const uint64_t h = hash(e, key);
  if (e.failed()) return nullptr;
  const Entry* entry = find_entry(dict, h, [&](Value other) { return equal(e, other, key); });
  return entry ? &entry->value : nullptr;
}

const Value* find(const Dict& dict, std::string_view key) {
  const Entry* entry =
      find_entry(dict, hash_text(key), [&](Value other) { return other.is_string() && other.text() == key; });
  return entry ? &entry->value : nullptr;
}

void set(Evaluation& e, Dict& dict, Value key, Value value) {
  const uint64_t h = hash(e, key);
  if (e.failed()) return;
  if (Entry* entry = find_entry(dict, h, [&](Value other) { return equal(e, other, key); })) {
    entry->value = value;
    return;
  }
  if (dict.size == dict.capacity) grow(e, dict);
  if (e.failed()) return;
  dict.entries[dict.size++] = {key, value, h};
  if (!dict.index) return;
  uint64_t at = h;
  while (dict.index[at & (dict.index_size - 1)]) ++at;
  dict.index[at & (dict.index_size - 1)] = dict.size;
}

// Numbers from text ----------------------------------------------------------------------------------------------------

namespace {

/// Python's digits: decimal digits of any script as ASCII ones, "_" between digits dropped. nullopt: a "_" elsewhere.
std::optional<std::string> plain_digits(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t c = next_char(text, pos);
    if (c == '_') {
      const bool between = !out.empty() && std::isxdigit(static_cast<unsigned char>(out.back())) && pos < text.size() &&
                           std::isxdigit(static_cast<unsigned char>(text[pos]));
      if (!between) return std::nullopt;
    } else if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (is_decimal_digit(c)) {
      // Decimal digits come in runs of ten, from zero to nine.
      uint32_t zero = c;
      while (c - zero < 9 && is_decimal_digit(zero - 1)) --zero;
      out += static_cast<char>('0' + (c - zero) % 10);
    } else {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

std::optional<Value> parse_int(Evaluation& e, std::string_view text, int base) {
  text = strip(text);
  bool is_negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    is_negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char prefix = static_cast<char>(text[1] | 0x20);
    const int prefixed = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    if (prefixed && (base == prefixed || base == 0)) {
      text.remove_prefix(text[2] == '_' && text.size() > 3 ? 3 : 2);
      base = prefixed;
    }
  }
  if (base == 0) {
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != text.npos) return std::nullopt;
    base = 10;
  }
  const auto digits = plain_digits(text);
  if (!digits || digits->empty() || !std::isalnum(static_cast<unsigned char>((*digits)[0]))) return std::nullopt;
  int64_t value = 0;
  const std::string signed_digits = (is_negative ? "-" : "") + *digits;
  const auto end = std::from_chars(signed_digits.data(), signed_digits.data() + signed_digits.size(), value, base);
  if (end.ptr != signed_digits.data() + signed_digits.size()) return std::nullopt;
  if (end.ec == std::errc::result_out_of_range) return too_large(e);
  if (end.ec != std::errc()) return std::nullopt;
  return Value::integer(value);
}

std::optional<double> parse_float(std::string_view text) {
  text = strip(text);
  const auto digits = plain_digits(text);
  if (!digits || digits->empty()) return std::nullopt;
  std::string_view rest = *digits;
  const bool is_negative = rest[0] == '-';
  if (rest[0] == '-' || rest[0] == '+') rest.remove_prefix(1);
  if (rest.empty()) return std::nullopt;
  const std::string word = to_lower(rest);
  if (word == "inf" || word == "infinity") return is_negative ? -HUGE_VAL : HUGE_VAL;
  if (word == "nan") return std::nan("");
  if (!std::isdigit(static_cast<unsigned char>(rest[0])) && rest[0] != '.') return std::nullopt;
  double value = 0;
  const auto end = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end.ptr != rest.data() + rest.size()) return std::nullopt;
  if (end.ec == std::errc::result_out_of_range) value = std::strtod(word.c_str(), nullptr);
  else if (end.ec != std::errc()) return std::nullopt;
  return is_negative ? -value : value;
}

Value truncated(Evaluation& e, double value) {
  if (std::isnan(value)) return e.fail("cannot convert float NaN to integer");
  if (std::isinf(value)) return e.fail("cannot convert float infinity to integer");
  const double whole = std::trunc(value);
  if (whole < -kTwo63 || whole >= kTwo63) return too_large(e);
  return Value::integer(static_cast<int64_t>(whole));
}

}  // namespace redline::jinja
