#include "chat/jinja/operations.h"

#include <algorithm>
#include <cmath>

#include "chat/jinja/methods.h"
#include "chat/jinja/objects.h"
#include "chat/jinja/python_text.h"

namespace redline::jinja {
namespace {

// Order
// ----------------------------------------------------------------------------------------------------------------

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
  if (a.is(Kind::kBigInt) || b.is(Kind::kBigInt)) fail_too_large(e);
  fail_order(e, a, b, op);
  return Order::kUnordered;
}

// Arithmetic
// -----------------------------------------------------------------------------------------------------------

std::string_view symbol(Arithmetic op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

Value fail_operands(Evaluation& e, Arithmetic op, Value a, Value b) {
  if (a.is_undefined()) return fail_undefined(e, a);
  if (b.is_undefined()) return fail_undefined(e, b);
  if (a.is(Kind::kBigInt) || b.is(Kind::kBigInt)) return fail_too_large(e);
  return e.fail("unsupported operand types for {}: '{}' and '{}'", symbol(op), type_name(a), type_name(b));
}

Value power(Evaluation& e, Value a, Value b) {
  if (a.is_int() && b.is_int() && b.as_int() >= 0) {
    int64_t result = 1, base = a.as_int();
    for (int64_t n = b.as_int(); n > 0; n >>= 1) {
      if ((n & 1) && __builtin_mul_overflow(result, base, &result)) return fail_too_large(e);
      if (n > 1 && __builtin_mul_overflow(base, base, &base)) return fail_too_large(e);
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
    case Arithmetic::kAdd: return __builtin_add_overflow(a, b, &result) ? fail_too_large(e) : Value::integer(result);
    case Arithmetic::kSub: return __builtin_sub_overflow(a, b, &result) ? fail_too_large(e) : Value::integer(result);
    case Arithmetic::kMul: return __builtin_mul_overflow(a, b, &result) ? fail_too_large(e) : Value::integer(result);
    default: break;
  }
  if (b == 0) return e.fail("division by zero");
  if (op == Arithmetic::kDiv)
    return Value::number(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  if (a == INT64_MIN && b == -1) return op == Arithmetic::kMod ? Value::integer(0) : fail_too_large(e);
  // As in Python, the quotient is rounded down, and the remainder has the sign of the divisor.
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

}  // namespace

Value fail_too_large(Evaluation& e) { return e.fail_unsupported("integers of more than 64 bits are not supported"); }

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
    // The pointers are compared first, because most equal strings are one object, as in CPython.
    case Kind::kString: return a.as_str() == b.as_str() || a.text() == b.text();
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
      return x.size() == y.size() &&
             std::equal(x.begin(), x.end(), y.begin(), [&](Value l, Value r) { return !e.failed() && equal(e, l, r); });
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
    // Markup can be added to strings only; for the other types Python has an error of its own.
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
  if (a.is_int()) return a.as_int() == INT64_MIN ? fail_too_large(e) : Value::integer(-a.as_int());
  if (a.is_undefined()) return fail_undefined(e, a);
  if (a.is(Kind::kBigInt)) return fail_too_large(e);
  return e.fail("bad operand type for unary -: '{}'", type_name(a));
}

Value plus(Evaluation& e, Value a) {
  if (a.is(Kind::kFloat)) return a;
  if (a.is_int()) return Value::integer(a.as_int());
  if (a.is_undefined()) return fail_undefined(e, a);
  return e.fail("bad operand type for unary +: '{}'", type_name(a));
}

}  // namespace redline::jinja
