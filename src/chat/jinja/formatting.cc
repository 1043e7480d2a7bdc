// "%d items" % 3 and "{} items".format(3).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "chat/jinja/methods.h"
#include "chat/jinja/operations.h"
#include "chat/jinja/python_text.h"
#include "text/unicode.h"

namespace redline::jinja {
namespace {

constexpr int64_t kMaxPrecision = 1000;

/// The layout of a value: sign, width, precision and so on, as "%" or str.format gives it.
struct Layout {
  std::string fill = " ";
  char align = 0;  ///< '<', '>', '^', '=' (after the sign), or 0: the default of the type
  char sign = '-';
  bool is_alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
  char grouping = 0;
  char type = 0;
};

std::string padded(Evaluation& e, std::string text, const Layout& layout, char default_align, size_t prefix_bytes = 0) {
  const int64_t size = count_chars(text);
  const int64_t missing = layout.width - size;
  if (missing <= 0) return text;
  if (!e.charge_bytes(static_cast<size_t>(missing) * layout.fill.size())) return text;
  const auto fill = [&](int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += layout.fill;
    return out;
  };
  switch (layout.align ? layout.align : default_align) {
    case '<': return text + fill(missing);
    case '^': return fill(missing / 2) + text + fill(missing - missing / 2);
    case '=': return text.substr(0, prefix_bytes) + fill(missing) + text.substr(prefix_bytes);
    default: return fill(missing) + text;
  }
}

std::string grouped(std::string digits, char separator, size_t group) {
  const size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  for (size_t at = end; at > group; at -= group) digits.insert(at - group, 1, separator);
  return digits;
}

std::string in_base(uint64_t value, int base, bool is_upper) {
  std::string digits;
  do digits += (is_upper ? "0123456789ABCDEF" : "0123456789abcdef")[value % static_cast<uint64_t>(base)];
  while (value /= static_cast<uint64_t>(base));
  std::reverse(digits.begin(), digits.end());
  return digits;
}

uint64_t magnitude(int64_t value) {
  return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

std::string with_sign(bool is_negative, char sign) {
  return is_negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : "";
}

std::string format_int(Evaluation& e, int64_t value, const Layout& layout) {
  const int base = layout.type == 'b' ? 2 : layout.type == 'o' ? 8 : layout.type == 'x' || layout.type == 'X' ? 16 : 10;
  std::string digits = in_base(magnitude(value), base, layout.type == 'X');
  if (layout.precision > static_cast<int64_t>(digits.size()))  // %.5d
    digits.insert(0, static_cast<size_t>(layout.precision) - digits.size(), '0');
  if (layout.grouping) digits = grouped(std::move(digits), layout.grouping, base == 10 ? 3 : 4);
  std::string prefix = with_sign(value < 0, layout.sign);
  if (layout.is_alternate && base != 10) prefix += fmt::format("0{}", layout.type);
  return padded(e, prefix + digits, layout, '>', prefix.size());
}

std::string format_double(Evaluation& e, double value, const Layout& layout) {
  const bool is_negative = std::signbit(value) && !std::isnan(value);
  const double size = std::abs(value);
  std::string digits;
  char type = layout.type;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (type && std::isupper(static_cast<unsigned char>(type))) digits = to_upper(digits);
    if (type == '%') digits += '%';
  } else if (!type && layout.precision < 0) {
    digits = float_repr(size);
  } else {
    const double scaled = type == '%' ? size * 100 : size;
    const char shown = !type || type == 'n' ? 'g' : type == '%' ? 'f' : type;
    const std::string pattern = fmt::format("%{}.*{}", layout.is_alternate ? "#" : "", shown);
    const int precision = static_cast<int>(layout.precision < 0 ? 6 : layout.precision);
    std::string buffer(static_cast<size_t>(precision) + 400, 0);
    const int written = std::snprintf(buffer.data(), buffer.size(), pattern.c_str(), precision, scaled);
    digits = buffer.substr(0, static_cast<size_t>(std::max(written, 0)));
    if (!type && digits.find_first_of(".e") == std::string::npos) digits += ".0";
    if (type == '%') digits += '%';
  }
  if (layout.grouping) digits = grouped(std::move(digits), layout.grouping, 3);
  const std::string sign = with_sign(is_negative, layout.sign);
  return padded(e, sign + digits, layout, '>', sign.size());
}

std::string cut(std::string text, int64_t precision) {
  if (precision >= 0) text.resize(char_offset(text, precision));
  return text;
}

// str.format
// -----------------------------------------------------------------------------------------------------------

std::optional<int64_t> read_number(std::string_view& text) {
  int64_t value = 0;
  size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9' && digits < 12; ++digits)
    value = value * 10 + (text[digits] - '0');
  if (digits == 0) return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

/// Returns false if the text is not a format specification.
bool parse_layout(std::string_view spec, Layout& layout) {
  if (!spec.empty()) {
    size_t fill = 0;
    next_char(spec, fill);
    if (fill < spec.size() && is_align(spec[fill])) {
      layout.fill = spec.substr(0, fill);
      layout.align = spec[fill];
      spec.remove_prefix(fill + 1);
    } else if (is_align(spec[0])) {
      layout.align = spec[0];
      spec.remove_prefix(1);
    }
  }
  const auto skip = [&](char c) {
    if (spec.empty() || spec[0] != c) return false;
    spec.remove_prefix(1);
    return true;
  };
  for (const char sign : {'+', '-', ' '})
    if (skip(sign)) {
      layout.sign = sign;
      break;
    }
  layout.is_alternate = skip('#');
  if (skip('0') && !layout.align) {
    layout.fill = "0";
    layout.align = '0';  // '=' for numbers, '<' for text
  }
  layout.width = read_number(spec).value_or(0);
  if (skip(',')) layout.grouping = ',';
  else if (skip('_')) layout.grouping = '_';
  if (skip('.')) {
    const auto precision = read_number(spec);
    if (!precision || *precision > kMaxPrecision) return false;
    layout.precision = *precision;
  }
  if (!spec.empty()) {
    layout.type = spec[0];
    spec.remove_prefix(1);
  }
  return spec.empty();
}

/// Does what Python's format(value, spec) does.
std::string format_value(Evaluation& e, Value value, std::string_view spec) {
  if (spec.empty()) return std::string(to_text(e, value));
  Layout layout;
  if (!parse_layout(spec, layout)) {
    e.fail("invalid format specifier '{}'", spec);
    return "";
  }
  const auto wrong_type = [&] {
    e.fail("unknown format code '{}' for object of type '{}'", layout.type, type_name(value));
    return std::string();
  };
  if (value.is_string()) {
    if (layout.align == '0') layout.align = '<';
    if ((layout.type && layout.type != 's') || layout.align == '=' || layout.grouping || layout.sign != '-' ||
        layout.is_alternate)
      return wrong_type();
    return padded(e, cut(std::string(value.text()), layout.precision), layout, '<');
  }
  if (layout.align == '0') layout.align = '=';
  if (value.is_int()) {
    constexpr std::string_view kIntTypes = "bcdoxXn";
    if (layout.type == 0 || kIntTypes.find(layout.type) != std::string::npos) {
      if (layout.precision >= 0) {
        e.fail("precision is not allowed in an integer format specifier");
        return "";
      }
      if (layout.type == 'c') {
        if (value.as_int() < 0 || value.as_int() > 0x10FFFF || (value.as_int() >> 11) == 0x1B) return wrong_type();
        std::string c;
        append_utf8(c, static_cast<uint32_t>(value.as_int()));
        return padded(e, c, layout, '<');
      }
      if (layout.grouping == ',' && layout.type && layout.type != 'd') return wrong_type();
      return format_int(e, value.as_int(), layout);
    }
  }
  if (value.is_number()) {
    constexpr std::string_view kFloatTypes = "eEfFgGn%";
    if (layout.type && kFloatTypes.find(layout.type) == std::string::npos) return wrong_type();
    return format_double(e, value.as_double(), layout);
  }
  e.fail("unsupported format string passed to {}.__format__", type_name(value));
  return "";
}

class BraceFormatter {
 public:
  BraceFormatter(Evaluation& e, const Args& args, bool is_markup) : e_(e), args_(args), is_markup_(is_markup) {}

  std::string run(std::string_view format, int levels = 2) {
    std::string out;
    if (levels == 0) {
      e_.fail("Max string recursion exceeded");
      return out;
    }
    while (!format.empty() && e_.charge_bytes(out.size())) {
      const size_t brace = format.find_first_of("{}");
      out += format.substr(0, brace);
      if (brace == std::string::npos) break;
      const char c = format[brace];
      format.remove_prefix(brace + 1);
      if (format.starts_with(c)) {
        out += c;
        format.remove_prefix(1);
        continue;
      }
      if (c == '}') {
        e_.fail("Single '}}' encountered in format string");
        break;
      }
      size_t end = 0;
      for (int depth = 1; end < format.size(); ++end) {
        if (format[end] == '{') ++depth;
        if (format[end] == '}' && --depth == 0) break;
      }
      if (end == format.size()) {
        e_.fail("expected '}}' before end of string");
        break;
      }
      out += field(format.substr(0, end), levels);
      format.remove_prefix(end + 1);
    }
    return out;
  }

 private:
  std::string field(std::string_view text, int levels) {
    // A field is written name [!conversion] [:spec]. Brackets in the name may hold '!' and ':'.
    size_t end = 0;
    for (bool in_brackets = false; end < text.size(); ++end) {
      if (text[end] == '[') in_brackets = true;
      if (text[end] == ']') in_brackets = false;
      if (!in_brackets && (text[end] == '!' || text[end] == ':')) break;
      if (text[end] == '{' || text[end] == '}') {
        e_.fail("unexpected '{{' in field name");
        return "";
      }
    }
    const std::string_view name = text.substr(0, end);
    text.remove_prefix(end);
    char conversion = 0;
    if (text.starts_with('!')) {
      if (text.size() < 2 || (text.size() > 2 && text[2] != ':')) {
        e_.fail("expected ':' after conversion specifier");
        return "";
      }
      conversion = text[1];
      text.remove_prefix(2);
    }
    std::string spec;
    if (text.starts_with(':')) text.remove_prefix(1);
    Value value = value_of(name);
    if (!text.empty()) spec = run(text, levels - 1);
    if (e_.failed()) return "";
    if (conversion == 'r' || conversion == 'a') {
      std::string repr;
      append_repr(e_, repr, value);
      if (conversion == 'a' && static_cast<int64_t>(repr.size()) != count_chars(repr))
        e_.fail_unsupported("the conversion !a is not supported");
      value = e_.string(repr);
    } else if (conversion == 's') {
      value = to_string(e_, value);
    } else if (conversion) {
      e_.fail("Unknown conversion specifier {}", conversion);
      return "";
    }
    std::string out = format_value(e_, value, spec);
    return is_markup_ && !value.is_markup() ? escape_html(out) : out;
  }

  Value value_of(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, first_end);
    std::string_view rest = name.substr(first_end);
    Value value;
    const bool is_number =
        !first.empty() && first.size() < 9 && first.find_first_not_of("0123456789") == std::string::npos;
    if (first.empty() || is_number) {
      if (first.empty() ? numbering_ == 2 : numbering_ == 1)
        return e_.fail("cannot switch between automatic and manual field numbering");
      numbering_ = first.empty() ? 1 : 2;
      size_t index = next_;
      if (first.empty()) ++next_;
      else index = static_cast<size_t>(std::stol(std::string(first)));
      if (index >= args_.positional.size())
        return e_.fail("Replacement index {} out of range for positional args tuple", index);
      value = args_.positional[index];
    } else {
      for (const auto& [key, given] : args_.keywords)
        if (key == first) value = given;
      if (value.is_missing()) return e_.fail("no argument '{}' for the format string", first);
    }
    while (!rest.empty() && !e_.failed()) {
      if (rest[0] == '.') {
        const size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
        if (end == 1) return e_.fail("Empty attribute in format string");
        value = attribute(e_, value, e_.text(rest.substr(1, end - 1))->text);
        rest.remove_prefix(end);
      } else if (rest[0] == '[') {
        const size_t end = rest.find(']');
        if (end == std::string::npos || end == 1) return e_.fail("Missing ']' in format string");
        const std::string_view key = rest.substr(1, end - 1);
        const bool is_index = key.find_first_not_of("0123456789") == std::string::npos && key.size() < 18;
        value = item(e_, value, is_index ? Value::integer(std::stoll(std::string(key))) : e_.string(key));
        rest.remove_prefix(end + 1);
      } else {
        return e_.fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Evaluation& e_;
  const Args& args_;
  bool is_markup_;
  size_t next_ = 0;
  int numbering_ = 0;  ///< numbering of the fields: 0: not known yet, 1: automatic, 2: manual
};

// "%"
// ------------------------------------------------------------------------------------------------------------------

class PercentFormatter {
 public:
  PercentFormatter(Evaluation& e, Value arguments, bool is_markup)
      : e_(e), arguments_(arguments), is_markup_(is_markup) {
    if (arguments.is(Kind::kTuple)) {
      items_ = arguments.as_list()->span();
    } else {
      items_ = {&arguments_, 1};
      // Python raises no error for an unused value if it can be subscripted.
      may_be_unused_ =
          arguments.is_dict() || arguments.is(Kind::kList) || arguments.is_undefined() || arguments.is(Kind::kRange);
    }
  }

  std::string run(std::string_view format) {
    std::string out;
    while (!format.empty() && e_.charge_bytes(out.size())) {
      const size_t percent = format.find('%');
      out += format.substr(0, percent);
      if (percent == std::string::npos) break;
      format.remove_prefix(percent + 1);
      out += one(format);
    }
    if (!e_.failed() && next_ < items_.size() && !may_be_unused_)
      e_.fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  std::string fail(std::string_view what) {
    e_.fail("{}", what);
    return "";
  }

  Value take() {
    if (next_ >= items_.size()) return e_.fail("not enough arguments for format string");
    return items_[next_++];
  }

  std::string one(std::string_view& format) {
    Layout layout;
    std::optional<Value> keyed;
    if (format.starts_with('(')) {
      size_t end = 1;
      for (int depth = 1; end < format.size(); ++end) {
        if (format[end] == '(') ++depth;
        if (format[end] == ')' && --depth == 0) break;
      }
      if (end >= format.size()) return fail("incomplete format key");
      if (!arguments_.is_dict()) return fail("format requires a mapping");
      const Value key = e_.string(format.substr(1, end - 1));
      const Value* found = find(e_, *arguments_.as_dict(), key);
      if (!found) return fail(fmt::format("no key '{}' for the format string", key.text()));
      keyed = *found;
      may_be_unused_ = true;
      format.remove_prefix(end + 1);
    }
    bool pads_zeros = false;
    for (; !format.empty(); format.remove_prefix(1)) {
      const char c = format[0];
      if (c == '-') layout.align = '<';
      else if (c == '+') layout.sign = '+';
      else if (c == ' ') layout.sign = layout.sign == '+' ? '+' : ' ';
      else if (c == '#') layout.is_alternate = true;
      else if (c == '0') pads_zeros = true;
      else break;
    }
    const auto read_size = [&](int64_t& size) {
      if (format.starts_with('*')) {
        format.remove_prefix(1);
        const Value value = take();
        if (!value.is_int()) e_.fail("* wants int");
        else size = value.as_int();
      } else {
        size = read_number(format).value_or(size);
      }
    };
    read_size(layout.width);
    if (layout.width < 0) {
      layout.align = '<';
      layout.width = layout.width == INT64_MIN ? INT64_MAX : -layout.width;
    }
    if (format.starts_with('.')) {
      format.remove_prefix(1);
      layout.precision = 0;
      read_size(layout.precision);
      layout.precision = std::max<int64_t>(layout.precision, 0);
    }
    if (e_.failed()) return "";
    while (format.starts_with('h') || format.starts_with('l') || format.starts_with('L')) format.remove_prefix(1);
    if (format.empty()) return fail("incomplete format");
    const char type = format[0];
    format.remove_prefix(1);
    if (type == '%') return "%";
    const Value value = keyed ? *keyed : take();
    if (e_.failed()) return "";
    return convert(type, value, layout, pads_zeros);
  }

  std::string convert(char type, Value value, Layout layout, bool pads_zeros) {
    if (type == 's' || type == 'r' || type == 'a') {
      std::string text;
      if (type == 's') append_text(e_, text, value);
      else append_repr(e_, text, value);
      if (type == 'a' && static_cast<int64_t>(text.size()) != count_chars(text))
        e_.fail_unsupported("the conversion %a is not supported");
      if (is_markup_ && !(type == 's' && value.is_markup())) text = escape_html(text);
      return padded(e_, cut(std::move(text), layout.precision), layout, '>');
    }
    if (type == 'c') {
      std::string text;
      if (value.is_string() && length(e_, value) == 1) text = value.text();
      else if (value.is_int() && value.as_int() >= 0 && value.as_int() <= 0x10FFFF && (value.as_int() >> 11) != 0x1B)
        append_utf8(text, static_cast<uint32_t>(value.as_int()));
      else return fail("%c requires int or char");
      return padded(e_, text, layout, '>');
    }
    if (layout.precision > kMaxPrecision) return fail("precision is too large");
    if (pads_zeros && !layout.align) {
      layout.fill = "0";
      layout.align = '=';
    }
    constexpr std::string_view kInts = "diuoxX", kFloats = "eEfFgG";
    if (kInts.find(type) != std::string::npos) {
      if (value.is_undefined()) {
        fail_undefined(e_, value);
        return "";
      }
      const bool takes_floats = type == 'd' || type == 'i' || type == 'u';
      if (takes_floats && value.is(Kind::kFloat)) value = truncated(e_, value.as_double());
      if (e_.failed()) return "";
      if (!value.is_int())
        return fail(fmt::format("%{} format: a real number is required, not {}", type, type_name(value)));
      layout.type = takes_floats ? 'd' : type;
      return format_int(e_, value.as_int(), layout);
    }
    if (kFloats.find(type) != std::string::npos) {
      if (value.is_undefined()) {
        fail_undefined(e_, value);
        return "";
      }
      std::optional<double> number;
      if (value.is_number()) number = value.as_double();
      if (!number) return fail(fmt::format("must be real number, not {}", type_name(value)));
      layout.type = type;
      return format_double(e_, *number, layout);
    }
    return fail(fmt::format("unsupported format character '{}'", type));
  }

  Evaluation& e_;
  Value arguments_;
  bool is_markup_;
  std::span<const Value> items_;
  size_t next_ = 0;
  bool may_be_unused_ = false;
};

}  // namespace

Value percent_format(Evaluation& e, Value format, Value arguments) {
  const std::string text = PercentFormatter(e, arguments, format.is_markup()).run(format.text());
  return e.string_in_place(e.text(text)->text, format.is_markup());
}

Value brace_format(Evaluation& e, Value format, const Args& args) {
  const std::string text = BraceFormatter(e, args, format.is_markup()).run(format.text());
  return e.string_in_place(e.text(text)->text, format.is_markup());
}

}  // namespace redline::jinja
