// Filters of text and numbers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "chat/jinja/filter_parts.h"
#include "chat/jinja/methods.h"
#include "chat/jinja/python_text.h"

namespace redline::jinja {
namespace {

/// Does what soft_str() of markupsafe does: converts to a string, and leaves Markup unchanged.
Value soft(Evaluation& e, Value value) { return to_string(e, value); }

// Text
// -----------------------------------------------------------------------------------------------------------------

Value upper(Evaluation& e, Value x, Values) { return call_method(e, soft(e, x), "upper"); }
Value lower(Evaluation& e, Value x, Values) { return call_method(e, soft(e, x), "lower"); }
Value capitalize(Evaluation& e, Value x, Values) { return call_method(e, soft(e, x), "capitalize"); }
Value trim(Evaluation& e, Value x, Values v) {
  return call_method(e, soft(e, x), "strip", {is_given(v[0]) ? v[0] : Value::none()});
}
Value center(Evaluation& e, Value x, Values v) {
  return call_method(e, soft(e, x), "center", {is_given(v[0]) ? v[0] : Value::integer(80)});
}
Value as_string(Evaluation& e, Value x, Values) { return soft(e, x); }

Value safe(Evaluation& e, Value x, Values) { return e.string_in_place(to_text(e, x), true); }
Value escape(Evaluation& e, Value x, Values) {
  if (x.is_markup()) return x;
  const std::string_view text = to_text(e, x);
  if (!e.charge_bytes(5 * text.size())) return x;
  return e.string_in_place(e.text(escape_html(text))->text, true);
}
Value force_escape(Evaluation& e, Value x, Values) { return escape(e, e.string_in_place(to_text(e, x)), {}); }

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
  return arithmetic(e, Arithmetic::kAdd,
                    item(e, call_method(e, kept, "rsplit", {e.string(" "), Value::integer(1)}), Value::integer(0)),
                    end);
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

// Numbers
// --------------------------------------------------------------------------------------------------------------

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

/// Rounds like Python's round(): half to even, by the exact value of the number.
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
  if (scaled.is_int()) return arithmetic(e, Arithmetic::kDiv, scaled, unit);
  const double value = scaled.as_double();
  if (!std::isfinite(value)) return truncated(e, value);
  return Value::number((way == "ceil" ? std::ceil(value) : std::floor(value)) / unit.as_double());
}

// clang-format off
const FilterRow kTextFilters[] = {
    {"capitalize", {}, capitalize},
    {"center", {0, {"width"}}, center},
    {"e", {}, escape},
    {"escape", {}, escape},
    {"filesizeformat", {0, {"binary"}}, filesizeformat},
    {"forceescape", {}, force_escape},
    {"format", {}, nullptr, format},
    {"indent", {0, {"width", "first", "blank"}}, indent},
    {"lower", {}, lower},
    {"replace", {2, {"old", "new", "count"}}, replace},
    {"safe", {}, safe},
    {"string", {}, as_string},
    {"title", {}, title},
    {"trim", {0, {"chars"}}, trim},
    {"truncate", {0, {"length", "killwords", "end", "leeway"}}, truncate},
    {"upper", {}, upper},
    {"urlencode", {}, urlencode},
    {"wordcount", {}, wordcount},
    {"xmlattr", {0, {"autospace"}}, xmlattr},
    {"abs", {}, absolute},
    {"float", {0, {"default"}}, to_float},
    {"int", {0, {"default", "base"}}, to_int},
    {"round", {0, {"precision", "method"}}, round},
};
// clang-format on

}  // namespace

std::span<const FilterRow> text_filters() { return kTextFilters; }

}  // namespace redline::jinja
