#include "chat/jinja/methods.h"

#include <algorithm>
#include <optional>

#include "chat/jinja/builtins.h"
#include "chat/jinja/operations.h"
#include "chat/jinja/python_text.h"

namespace redline::jinja {
namespace {

using Values = std::span<const Value>;

/// A row of the tables below. `parameters` that begin with "_" cannot be given by name, as in CPython.
struct Method {
  std::string_view name;
  Parameters parameters;
  Value (*call)(Evaluation& e, Value self, Values values);
};

// Arguments
// ------------------------------------------------------------------------------------------------------------

std::string_view text_of(Evaluation& e, Value value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) e.fail("a method of str needs a string, not an undefined value");
  else e.fail("a method of str needs a string, not '{}'", type_name(value));
  return {};
}

int64_t count_or(Evaluation& e, Value value, int64_t otherwise) {
  if (value.is_missing()) return otherwise;
  if (value.is_int()) return value.as_int();
  e.fail("'{}' object cannot be interpreted as an integer", type_name(value));
  return otherwise;
}

/// Returns a new string of the kind of `self` (str or Markup), with a copy of `text`.
Value made(Evaluation& e, Value self, std::string_view text) {
  return e.string_in_place(e.text(text)->text, self.is_markup());
}
/// Returns a part of `self` without a copy of its text.
Value part(Evaluation& e, Value self, std::string_view text) { return e.string_in_place(text, self.is_markup()); }
Value parts(Evaluation& e, Value self, const std::vector<std::string_view>& texts) {
  std::vector<Value> items;
  items.reserve(texts.size());
  if (!e.charge(static_cast<int64_t>(texts.size()))) return self;
  for (const std::string_view text : texts) items.push_back(part(e, self, text));
  return e.list(items);
}

/// The bytes of the characters from start to stop. No range (nullopt) means that start is past the end, where not even
/// "" is found.
struct ByteRange {
  size_t begin, end;
};
std::optional<ByteRange> byte_range(Evaluation& e, Value self, Value start, Value stop) {
  const int64_t size = length_of(*self.as_str());
  const auto index = [&](Value v, int64_t otherwise) {
    if (v.is_missing() || v.is_none()) return otherwise;
    const int64_t at = count_or(e, v, otherwise);
    return at < 0 ? std::max<int64_t>(at + size, 0) : at;
  };
  const int64_t first = index(start, 0), last = std::min(index(stop, size), size);
  if (first > last) return std::nullopt;
  const size_t begin = char_offset(self.text(), first);
  return ByteRange{begin, begin + char_offset(self.text().substr(begin), last - first)};
}

// str
// ------------------------------------------------------------------------------------------------------------------

template <std::string (*f)(std::string_view)>
Value mapped(Evaluation& e, Value self, Values) {
  if (!e.charge_bytes(4 * self.text().size())) return self;
  return made(e, self, f(self.text()));
}

template <std::string_view (*f)(std::string_view, const std::string_view*)>
Value stripped(Evaluation& e, Value self, Values v) {
  e.charge_bytes(self.text().size());
  if (v[0].is_missing() || v[0].is_none()) return part(e, self, f(self.text(), nullptr));
  const std::string_view chars = text_of(e, v[0]);
  return part(e, self, f(self.text(), &chars));
}

template <bool from_right>
Value split(Evaluation& e, Value self, Values v) {
  const int64_t most = count_or(e, v[1], -1);
  if (!e.charge_bytes(self.text().size())) return self;
  if (v[0].is_missing() || v[0].is_none())
    return parts(e, self, from_right ? rsplit_space(self.text(), most) : split_space(self.text(), most));
  const std::string_view separator = text_of(e, v[0]);
  if (e.failed()) return self;
  if (separator.empty()) return e.fail("empty separator");
  return parts(e, self, from_right ? rsplit_at(self.text(), separator, most) : split_at(self.text(), separator, most));
}

Value splitlines(Evaluation& e, Value self, Values v) {
  if (!e.charge_bytes(self.text().size())) return self;
  return parts(e, self, split_lines(self.text(), !v[0].is_missing() && truthy(e, v[0])));
}

template <bool from_right>
Value partition(Evaluation& e, Value self, Values v) {
  const std::string_view separator = text_of(e, v[0]), text = self.text();
  if (e.failed()) return self;
  if (separator.empty()) return e.fail("empty separator");
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  const Value none = part(e, self, {});
  if (at == std::string::npos)
    return from_right ? e.tuple({none, none, part(e, self, text)}) : e.tuple({part(e, self, text), none, none});
  return e.tuple({part(e, self, text.substr(0, at)), part(e, self, text.substr(at, separator.size())),
                  part(e, self, text.substr(at + separator.size()))});
}

template <bool at_start>
Value has_affix(Evaluation& e, Value self, Values v) {
  const auto range = byte_range(e, self, v[1], v[2]);
  const auto matches = [&](Value affix) {
    const std::string_view word = text_of(e, affix);
    if (!range || e.failed()) return false;
    const std::string_view text = self.text().substr(range->begin, range->end - range->begin);
    return at_start ? text.starts_with(word) : text.ends_with(word);
  };
  if (v[0].is(Kind::kTuple)) {
    for (const Value affix : v[0].as_list()->span())
      if (matches(affix)) return Value::boolean(true);
    return Value::boolean(false);
  }
  return Value::boolean(matches(v[0]));
}

template <bool from_right, bool must_exist>
Value find_text(Evaluation& e, Value self, Values v) {
  const std::string_view word = text_of(e, v[0]);
  const auto range = byte_range(e, self, v[1], v[2]);
  if (!e.charge_bytes(self.text().size())) return self;
  size_t at = std::string_view::npos;
  if (range) {
    const std::string_view text = self.text().substr(range->begin, range->end - range->begin);
    at = from_right ? text.rfind(word) : text.find(word);
    if (at != std::string::npos) return Value::integer(count_chars(self.text().substr(0, range->begin + at)));
  }
  if (must_exist) return e.fail("substring not found");
  return Value::integer(-1);
}

Value count(Evaluation& e, Value self, Values v) {
  const std::string_view word = text_of(e, v[0]);
  const auto range = byte_range(e, self, v[1], v[2]);
  if (!range || !e.charge_bytes(self.text().size())) return Value::integer(0);
  const std::string_view text = self.text().substr(range->begin, range->end - range->begin);
  if (word.empty()) return Value::integer(count_chars(text) + 1);
  int64_t found = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++found;
  return Value::integer(found);
}

Value replace_method(Evaluation& e, Value self, Values v) {
  const std::string_view from = text_of(e, v[0]), to = text_of(e, v[1]);
  const int64_t most = count_or(e, v[2], -1);
  const std::string escaped = self.is_markup() && !v[1].is_markup() ? escape_html(to) : std::string(to);
  if (e.failed() || !e.charge_bytes(replaced_bytes(self.text(), from, escaped, most))) return self;
  return made(e, self, replaced(self.text(), from, escaped, most));
}

Value join_method(Evaluation& e, Value self, Values v) {
  std::string out;
  Iterator* items = iterate(e, v[0]);
  Value item;
  for (int64_t i = 0; items && items->next(e, item); ++i) {
    if (i > 0) out += self.text();
    if (self.is_markup()) {
      out += item.is_markup() ? std::string(item.text()) : escape_html(to_text(e, item));
    } else if (item.is_string()) {
      out += item.text();
    } else {
      return e.fail("sequence item {}: expected str instance, {} found", i, type_name(item));
    }
    if (!e.charge_bytes(out.size() / 16)) break;  // `out` is copied once more at the end
    if (static_cast<int64_t>(out.size()) > e.limits().output_bytes) e.charge_bytes(out.size());
  }
  return made(e, self, out);
}

/// Does what ljust, rjust and center do, as `align` says.
template <char align>
Value justified(Evaluation& e, Value self, Values v) {
  const int64_t width = count_or(e, v[0], 0), size = length_of(*self.as_str());
  const std::string_view fill = v[1].is_missing() ? std::string_view(" ") : text_of(e, v[1]);
  if (e.failed()) return self;
  if (count_chars(fill) != 1) return e.fail("The fill character must be exactly one character long");
  const int64_t missing = width - size;
  if (missing <= 0) return self;
  if (!e.charge_bytes(static_cast<size_t>(missing) * fill.size())) return self;
  const int64_t left = align == '<' ? 0 : align == '>' ? missing : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return made(e, self, out);
}

Value zfill(Evaluation& e, Value self, Values v) {
  const int64_t missing = count_or(e, v[0], 0) - length_of(*self.as_str());
  if (missing <= 0 || !e.charge_bytes(static_cast<size_t>(missing))) return self;
  std::string_view text = self.text();
  std::string out;
  if (text.starts_with('-') || text.starts_with('+')) {
    out += text[0];
    text.remove_prefix(1);
  }
  out.append(static_cast<size_t>(missing), '0').append(text);
  return made(e, self, out);
}

Value expandtabs(Evaluation& e, Value self, Values v) {
  const int64_t size = count_or(e, v[0], 8);
  const std::string_view text = self.text();
  const auto tabs = static_cast<size_t>(std::count(text.begin(), text.end(), '\t'));
  if (size > 0 && tabs > 0 &&
      static_cast<double>(size) * static_cast<double>(tabs) > static_cast<double>(e.limits().output_bytes)) {
    e.charge_bytes(static_cast<size_t>(e.limits().output_bytes) + 1);
    return self;
  }
  std::string out;
  int64_t column = 0;
  for (const char c : text) {
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
      continue;
    }
    out += c;
    if (c == '\n' || c == '\r') column = 0;
    else if ((static_cast<uint8_t>(c) & 0xC0) != 0x80) ++column;
  }
  return made(e, self, out);
}

template <bool is_prefix>
Value removed_affix(Evaluation& e, Value self, Values v) {
  const std::string_view affix = text_of(e, v[0]);
  std::string_view text = self.text();
  if (is_prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!is_prefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return part(e, self, text);
}

template <bool (*test)(uint32_t), bool of_empty = false>
Value all_chars(Evaluation& e, Value self, Values) {
  const std::string_view text = self.text();
  if (!e.charge_bytes(text.size())) return self;
  for (size_t pos = 0; pos < text.size();)
    if (!test(next_char(text, pos))) return Value::boolean(false);
  return Value::boolean(!text.empty() || of_empty);
}
bool is_ascii_char(uint32_t c) { return c < 0x80; }

/// Does what islower() and isupper() do: there must be a cased character, and none of the other case.
template <bool (*wanted)(uint32_t), bool (*other)(uint32_t)>
Value is_case(Evaluation& e, Value self, Values) {
  const std::string_view text = self.text();
  if (!e.charge_bytes(text.size())) return self;
  bool found = false;
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t c = next_char(text, pos);
    if (other(c) || is_title(c)) return Value::boolean(false);
    found = found || wanted(c);
  }
  return Value::boolean(found);
}

Value istitle(Evaluation& e, Value self, Values) {
  const std::string_view text = self.text();
  if (!e.charge_bytes(text.size())) return self;
  bool found = false, in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t c = next_char(text, pos);
    const bool starts = is_upper(c) || is_title(c), follows = is_lower(c);
    if ((starts && in_word) || (follows && !in_word)) return Value::boolean(false);
    in_word = starts || follows;
    found = found || in_word;
  }
  return Value::boolean(found);
}

Value isidentifier(Evaluation& e, Value self, Values) {
  const std::string_view text = self.text();
  if (!e.charge_bytes(text.size())) return self;
  for (size_t pos = 0; pos < text.size();) {
    const bool is_first = pos == 0;
    const uint32_t c = next_char(text, pos);
    if (c != '_' && !is_alpha(c) && (is_first || !is_decimal_digit(c))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

Value not_supported(Evaluation& e, Value, Values) { return e.fail_unsupported("this method is not supported"); }

const Method kStringMethods[] = {
    {"capitalize", {}, mapped<to_capitalized>},
    {"casefold", {}, mapped<fold_case>},
    {"center", {1, {"_width", "_fillchar"}}, justified<'^'>},
    {"count", {1, {"_sub", "_start", "_end"}}, count},
    {"encode", {0, {"encoding", "errors"}}, not_supported},
    {"endswith", {1, {"_suffix", "_start", "_end"}}, has_affix<false>},
    {"expandtabs", {0, {"tabsize"}}, expandtabs},
    {"find", {1, {"_sub", "_start", "_end"}}, find_text<false, false>},
    {"index", {1, {"_sub", "_start", "_end"}}, find_text<false, true>},
    {"isalnum", {}, all_chars<is_alnum>},
    {"isalpha", {}, all_chars<is_alpha>},
    {"isascii", {}, all_chars<is_ascii_char, true>},
    {"isdecimal", {}, all_chars<is_decimal_digit>},
    {"isdigit", {}, all_chars<is_digit>},
    {"isidentifier", {}, isidentifier},
    {"islower", {}, is_case<is_lower, is_upper>},
    {"isnumeric", {}, all_chars<is_numeric_char>},
    {"isprintable", {}, all_chars<is_printable, true>},
    {"isspace", {}, all_chars<is_space>},
    {"istitle", {}, istitle},
    {"isupper", {}, is_case<is_upper, is_lower>},
    {"join", {1, {"_iterable"}}, join_method},
    {"ljust", {1, {"_width", "_fillchar"}}, justified<'<'>},
    {"lower", {}, mapped<to_lower>},
    {"lstrip", {0, {"_chars"}}, stripped<strip_left>},
    {"maketrans", {0, {"_x", "_y", "_z"}}, not_supported},
    {"partition", {1, {"_sep"}}, partition<false>},
    {"removeprefix", {1, {"_prefix"}}, removed_affix<true>},
    {"removesuffix", {1, {"_suffix"}}, removed_affix<false>},
    {"replace", {2, {"_old", "_new", "_count"}}, replace_method},
    {"rfind", {1, {"_sub", "_start", "_end"}}, find_text<true, false>},
    {"rindex", {1, {"_sub", "_start", "_end"}}, find_text<true, true>},
    {"rjust", {1, {"_width", "_fillchar"}}, justified<'>'>},
    {"rpartition", {1, {"_sep"}}, partition<true>},
    {"rsplit", {0, {"sep", "maxsplit"}}, split<true>},
    {"rstrip", {0, {"_chars"}}, stripped<strip_right>},
    {"split", {0, {"sep", "maxsplit"}}, split<false>},
    {"splitlines", {0, {"keepends"}}, splitlines},
    {"startswith", {1, {"_prefix", "_start", "_end"}}, has_affix<true>},
    {"strip", {0, {"_chars"}}, stripped<strip>},
    {"swapcase", {}, mapped<swap_case>},
    {"title", {}, mapped<to_title>},
    {"translate", {1, {"_table"}}, not_supported},
    {"upper", {}, mapped<to_upper>},
    {"zfill", {1, {"_width"}}, zfill},
};

// list, tuple and dict
// -------------------------------------------------------------------------------------------------

Value list_index(Evaluation& e, Value self, Values v) {
  const auto items = self.as_list()->span();
  const auto size = static_cast<int64_t>(items.size());
  const auto bound = [&](Value value, int64_t otherwise) {
    const int64_t at = count_or(e, value, otherwise);
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const int64_t stop = bound(v[2], size);
  for (int64_t i = bound(v[1], 0); i < stop && !e.failed(); ++i)
    if (equal(e, items[static_cast<size_t>(i)], v[0])) return Value::integer(i);
  return e.fail("the value is not in the list");
}

Value list_count(Evaluation& e, Value self, Values v) {
  int64_t found = 0;
  for (const Value item : self.as_list()->span()) {
    if (e.failed()) break;
    if (equal(e, item, v[0])) ++found;
  }
  return Value::integer(found);
}

Value itself(Evaluation&, Value self, Values) { return self; }
Value list_copy(Evaluation& e, Value self, Values) { return e.list(self.as_list()->span()); }

Value dict_get(Evaluation& e, Value self, Values v) {
  const Value* value = find(e, *self.as_dict(), v[0]);
  return value ? *value : v[1].is_missing() ? Value::none() : v[1];
}

template <View::Part which>
Value dict_view(Evaluation& e, Value self, Values) {
  return Value::view(e.arena.make(View{self.as_dict(), which}));
}

const Method kListMethods[] = {
    {"copy", {}, list_copy},
    {"count", {1, {"_value"}}, list_count},
    {"index", {1, {"_value", "_start", "_stop"}}, list_index},
};
const Method kTupleMethods[] = {
    {"count", {1, {"_value"}}, list_count},
    {"index", {1, {"_value", "_start", "_stop"}}, list_index},
};
const Method kDictMethods[] = {
    {"copy", {}, itself},
    {"fromkeys", {1, {"_iterable", "_value"}}, not_supported},
    {"get", {1, {"_key", "_default"}}, dict_get},
    {"items", {}, dict_view<View::Part::kItems>},
    {"keys", {}, dict_view<View::Part::kKeys>},
    {"values", {}, dict_view<View::Part::kValues>},
};
const Method kNumberMethods[] = {
    {"as_integer_ratio", {}, not_supported}, {"bit_count", {}, not_supported},   {"bit_length", {}, not_supported},
    {"conjugate", {}, not_supported},        {"denominator", {}, not_supported}, {"from_bytes", {}, not_supported},
    {"fromhex", {}, not_supported},          {"hex", {}, not_supported},         {"imag", {}, not_supported},
    {"is_integer", {}, not_supported},       {"numerator", {}, not_supported},   {"real", {}, not_supported},
    {"to_bytes", {}, not_supported},
};

constexpr std::string_view kListChanges[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};

Value call_method(Evaluation& e, const Function& called, const Args& args) {
  const Method& method = *static_cast<const Method*>(called.row);
  Value values[kMaxParameters];
  if (!bind_arguments(e, method.name, args, method.parameters, values)) return Value::none();
  return method.call(e, called.self, {values, kMaxParameters});
}

Value call_format(Evaluation& e, const Function& called, const Args& args) {
  return brace_format(e, called.self, args);
}

Value call_format_map(Evaluation& e, const Function& called, const Args& args) {
  if (!args.keywords.empty() || args.positional.size() != 1 || !args.positional[0].is_dict())
    return e.fail("format_map() takes one dict");
  std::vector<std::pair<std::string_view, Value>> keywords;
  for (const Entry& entry : args.positional[0].as_dict()->span())
    if (entry.key.is_string()) keywords.emplace_back(entry.key.text(), entry.value);
  return brace_format(e, called.self, {{}, keywords});
}

Value cycler_next(Evaluation& e, const Function& called, const Args& args) {
  Cycler& cycler = *called.self.as_cycler();
  if (!args.positional.empty() || !args.keywords.empty()) return e.fail("cycler.next() takes no arguments");
  const Value value = cycler.items->items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items->size;
  return value;
}

Value cycler_reset(Evaluation&, const Function& called, const Args&) {
  called.self.as_cycler()->position = 0;
  return Value::none();
}

Value cycler_attribute(Evaluation& e, Value object, std::string_view name) {
  const Cycler& cycler = *object.as_cycler();
  if (name == "next") return e.function("next", cycler_next, object);
  if (name == "reset") return e.function("reset", cycler_reset, object);
  if (name == "current") return cycler.items->items[cycler.position];
  if (name == "items") return Value::tuple(cycler.items);
  if (name == "pos") return Value::integer(static_cast<int64_t>(cycler.position));
  return Value::missing();
}

Value view_attribute(Evaluation& e, Value object, std::string_view name) {
  if (name == "mapping" || name == "isdisjoint") return e.fail_unsupported("'{}' is not supported", name);
  (void)object;
  return Value::missing();
}

Value bound(Evaluation& e, std::span<const Method> table, Value object, std::string_view name) {
  for (const Method& method : table)
    if (method.name == name) return e.function(method.name.data(), call_method, object, &method);
  return Value::missing();
}

Value unsafe(Evaluation& e, std::span<const std::string_view> names, Value object, std::string_view name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) return Value::missing();
  return e.undefined(
      e.text(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(object)))->text);
}

}  // namespace

Value find_method(Evaluation& e, Value object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString:
      if (name == "format") return e.function("format", call_format, object);
      if (name == "format_map") return e.function("format_map", call_format_map, object);
      return bound(e, kStringMethods, object, name);
    case Kind::kList:
      if (const Value method = bound(e, kListMethods, object, name); !method.is_missing()) return method;
      return unsafe(e, kListChanges, object, name);
    case Kind::kTuple:
      if (object.as_list()->is_group && name == "grouper") return object.as_list()->items[0];
      if (object.as_list()->is_group && name == "list") return object.as_list()->items[1];
      return bound(e, kTupleMethods, object, name);
    case Kind::kDict:
      if (const Value method = bound(e, kDictMethods, object, name); !method.is_missing()) return method;
      return unsafe(e, kDictChanges, object, name);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat: return bound(e, kNumberMethods, object, name);
    case Kind::kRange:
      if (name == "start") return Value::integer(object.as_range()->start);
      if (name == "stop") return Value::integer(object.as_range()->stop);
      if (name == "step") return Value::integer(object.as_range()->step);
      return Value::missing();
    case Kind::kCycler: return cycler_attribute(e, object, name);
    case Kind::kView: return view_attribute(e, object, name);
    default: return Value::missing();
  }
}

}  // namespace redline::jinja
