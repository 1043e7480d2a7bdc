// str() and repr() of values, and numbers from text.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "chat/jinja/objects.h"
#include "chat/jinja/operations.h"
#include "chat/jinja/python_text.h"

namespace redline::jinja {

// Text
// -----------------------------------------------------------------------------------------------------------------

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
    // Python prints the addresses of these objects, which would differ from run to run.
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

Value to_string(Evaluation& e, Value value) { return value.is_string() ? value : e.string_in_place(to_text(e, value)); }

int64_t length_of(const Str& text) {
  if (text.length < 0) text.length = count_chars(text.text);
  return text.length;
}

bool has_length(Value value) { return is_iterable(value) && value.kind() != Kind::kIterator; }

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

// Numbers from text
// ----------------------------------------------------------------------------------------------------

namespace {

/// Returns the text with decimal digits of any script as ASCII digits, and without "_" between digits, as Python reads
/// numbers. Returns nullopt if a "_" is elsewhere.
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
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string::npos) return std::nullopt;
    base = 10;
  }
  const auto digits = plain_digits(text);
  if (!digits || digits->empty() || !std::isalnum(static_cast<unsigned char>((*digits)[0]))) return std::nullopt;
  int64_t value = 0;
  const std::string signed_digits = (is_negative ? "-" : "") + *digits;
  const auto end = std::from_chars(signed_digits.data(), signed_digits.data() + signed_digits.size(), value, base);
  if (end.ptr != signed_digits.data() + signed_digits.size()) return std::nullopt;
  if (end.ec == std::errc::result_out_of_range) return fail_too_large(e);
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
  if (whole < -kTwo63 || whole >= kTwo63) return fail_too_large(e);
  return Value::integer(static_cast<int64_t>(whole));
}

}  // namespace redline::jinja
