#include "chat/jinja/python_text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/unicode.h"

namespace redline::jinja {
namespace {

utf8proc_category_t category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

struct Span {
  uint32_t first, last;
};

template <size_t n>
bool contains(const Span (&spans)[n], uint32_t c) {
  return std::any_of(std::begin(spans), std::end(spans), [c](const Span& s) { return c >= s.first && c <= s.last; });
}

/// Uppercase forms of more than one character (SpecialCasing.txt, without conditions).
struct LongUpper {
  uint32_t c;
  const char* upper;
};
constexpr LongUpper kLongUppers[] = {
    {0xDF, "SS"},   {0x149, "ʼN"},  {0x1F0, "J̌"},    {0x390, "Ϊ́"},    {0x3B0, "Ϋ́"},   {0x587, "ԵՒ"},  {0x1E96, "H̱"},
    {0x1E97, "T̈"},  {0x1E98, "W̊"},  {0x1E99, "Y̊"},   {0x1E9A, "Aʾ"},  {0x1F50, "Υ̓"},  {0x1F52, "Υ̓̀"},  {0x1F54, "Υ̓́"},
    {0x1F56, "Υ̓͂"},  {0x1FB6, "Α͂"},  {0x1FC6, "Η͂"},   {0x1FD2, "Ϊ̀"},   {0x1FD3, "Ϊ́"},  {0x1FD6, "Ι͂"},  {0x1FD7, "Ϊ͂"},
    {0x1FE2, "Ϋ̀"},  {0x1FE3, "Ϋ́"},  {0x1FE4, "Ρ̓"},   {0x1FE6, "Υ͂"},   {0x1FE7, "Ϋ͂"},  {0x1FF6, "Ω͂"},  {0xFB00, "FF"},
    {0xFB01, "FI"}, {0xFB02, "FL"}, {0xFB03, "FFI"}, {0xFB04, "FFL"}, {0xFB05, "ST"}, {0xFB06, "ST"}, {0xFB13, "ՄՆ"},
    {0xFB14, "ՄԵ"}, {0xFB15, "ՄԻ"}, {0xFB16, "ՎՆ"},  {0xFB17, "ՄԽ"},
};

void append_upper(std::string& out, uint32_t c) {
  if (c >= 0x80)
    for (const LongUpper& l : kLongUppers)
      if (l.c == c) {
        out += l.upper;
        return;
      }
  append_utf8(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, uint32_t c) {
  if (c == 0xDF) {
    out += "Ss";
  } else if (c >= 0xFB00 && c <= 0xFB06) {
    constexpr const char* kLigatures[] = {"Ff", "Fi", "Fl", "Ffi", "Ffl", "St", "St"};
    out += kLigatures[c - 0xFB00];
  } else {
    append_utf8(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

/// Returns true for characters that are skipped when a sigma is checked for being the last letter of a word.
bool is_case_ignorable(uint32_t c) {
  if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xA8 || c == 0xAD || c == 0xB7 || c == 0x2019)
    return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return false;
  }
}

bool is_cased(uint32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

/// Returns true if the capital sigma at byte `at` ends a word; it is then ς in lower case.
bool is_final_sigma(std::string_view text, size_t at) {
  size_t before = at;
  bool follows_letter = false;
  while (before > 0) {
    do --before;
    while ((static_cast<uint8_t>(text[before]) & 0xC0) == 0x80);
    size_t pos = before;
    const uint32_t c = next_char(text, pos);
    if (is_case_ignorable(c)) continue;
    follows_letter = is_cased(c);
    break;
  }
  if (!follows_letter) return false;
  size_t pos = at;
  next_char(text, pos);
  while (pos < text.size()) {
    const uint32_t c = next_char(text, pos);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, size_t at, uint32_t c) {
  if (c == 0x3A3) {
    out += is_final_sigma(text, at) ? "ς" : "σ";
  } else if (c == 0x130) {
    out += "i\xCC\x87";
  } else {
    append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

template <class Append>
std::string map_chars(std::string_view text, Append&& append) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t at = pos;
    append(out, at, next_char(text, pos));
  }
  return out;
}

/// Returns the last character of `text`, which is not empty. Sets `at` to the offset of its first byte.
uint32_t last_char(std::string_view text, size_t& at) {
  at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  size_t pos = at;
  return next_char(text, pos);
}

bool in_set(uint32_t c, const std::string_view* chars) {
  if (!chars) return is_space(c);
  for (size_t pos = 0; pos < chars->size();)
    if (next_char(*chars, pos) == c) return true;
  return false;
}

}  // namespace

uint32_t next_char(std::string_view text, size_t& pos) {
  if (is_ascii(text[pos])) return static_cast<uint8_t>(text[pos++]);
  const Utf8Char c = utf8_at(text, pos);
  pos += c.bytes;
  return c.value;
}

int64_t count_chars(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

size_t char_offset(std::string_view text, int64_t index) {
  size_t pos = 0;
  for (; index > 0 && pos < text.size(); --index) {
    ++pos;
    while (pos < text.size() && (static_cast<uint8_t>(text[pos]) & 0xC0) == 0x80) ++pos;
  }
  return pos;
}

bool is_space(uint32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

bool is_line_break(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alpha(uint32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal_digit(uint32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(uint32_t c) {
  // Numeric_Type=Digit: digits that are not decimal.
  static constexpr Span kDigits[] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                                     {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                                     {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                                     {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                                     {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return is_decimal_digit(c) || (c >= 0x80 && contains(kDigits, c));
}

bool is_numeric_char(uint32_t c) {
  static constexpr uint32_t kHan[] = {0x3405, 0x3483, 0x382A, 0x3B4D, 0x4E00, 0x4E03, 0x4E07, 0x4E09, 0x4E5D, 0x4E8C,
                                      0x4E94, 0x4E96, 0x4EBF, 0x4EC0, 0x4EDF, 0x4EE8, 0x4F0D, 0x4F70, 0x5104, 0x5146,
                                      0x5169, 0x516B, 0x516D, 0x5341, 0x5343, 0x5344, 0x5345, 0x534C, 0x53C1, 0x53C2,
                                      0x53C3, 0x53C4, 0x56DB, 0x58F1, 0x58F9, 0x5E7A, 0x5EFE, 0x5EFF, 0x5F0C, 0x5F0D,
                                      0x5F0E, 0x5F10, 0x62FE, 0x634C, 0x67D2, 0x6F06, 0x7396, 0x767E, 0x8086, 0x842C,
                                      0x8CAE, 0x8CB3, 0x8D30, 0x9621, 0x9646, 0x964C, 0x9678, 0x96F6};
  if (c < 0x80) return c >= '0' && c <= '9';
  if (is_numeric(c)) return true;
  return std::find(std::begin(kHan), std::end(kHan), c) != std::end(kHan);
}

bool is_upper(uint32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool is_lower(uint32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  // Other_Lowercase, in addition to the letters of category Ll.
  static constexpr Span kOthers[] = {{0xAA, 0xAA},     {0xBA, 0xBA},     {0x2B0, 0x2B8},   {0x2C0, 0x2C1},
                                     {0x2E0, 0x2E4},   {0x345, 0x345},   {0x37A, 0x37A},   {0x1D2C, 0x1D6A},
                                     {0x1D78, 0x1D78}, {0x1D9B, 0x1DBF}, {0x2071, 0x2071}, {0x207F, 0x207F},
                                     {0x2090, 0x209C}, {0x2170, 0x217F}, {0x24D0, 0x24E9}, {0x2C7C, 0x2C7D},
                                     {0xA69C, 0xA69D}, {0xA770, 0xA770}, {0xA7F8, 0xA7F9}, {0xAB5C, 0xAB5F}};
  return category(c) == UTF8PROC_CATEGORY_LL || contains(kOthers, c);
}

bool is_title(uint32_t c) { return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(uint32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
  }
}

std::string to_upper(std::string_view text) {
  return map_chars(text, [](std::string& out, size_t, uint32_t c) { append_upper(out, c); });
}

std::string to_lower(std::string_view text) {
  return map_chars(text, [&](std::string& out, size_t at, uint32_t c) { append_lower(out, text, at, c); });
}

std::string to_title(std::string_view text) {
  bool in_word = false;
  return map_chars(text, [&](std::string& out, size_t at, uint32_t c) {
    if (in_word) {
      append_lower(out, text, at, c);
    } else {
      append_title(out, c);
    }
    in_word = is_cased(c);
  });
}

std::string to_capitalized(std::string_view text) {
  return map_chars(text, [&](std::string& out, size_t at, uint32_t c) {
    if (at == 0) {
      append_title(out, c);
    } else {
      append_lower(out, text, at, c);
    }
  });
}

std::string swap_case(std::string_view text) {
  return map_chars(text, [&](std::string& out, size_t at, uint32_t c) {
    if (is_upper(c)) {
      append_lower(out, text, at, c);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_utf8(out, c);
    }
  });
}

std::string fold_case(std::string_view text) {
  return map_chars(text, [](std::string& out, size_t, uint32_t c) {
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(out, static_cast<uint32_t>(folded[i]));
  });
}

std::string_view strip_left(std::string_view text, const std::string_view* chars) {
  while (!text.empty()) {
    size_t pos = 0;
    if (!in_set(next_char(text, pos), chars)) break;
    text.remove_prefix(pos);
  }
  return text;
}

std::string_view strip_right(std::string_view text, const std::string_view* chars) {
  while (!text.empty()) {
    size_t at;
    if (!in_set(last_char(text, at), chars)) break;
    text = text.substr(0, at);
  }
  return text;
}

std::vector<std::string_view> split_space(std::string_view text, int64_t max_splits) {
  std::vector<std::string_view> parts;
  text = strip_left(text);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) >= max_splits) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    for (size_t pos = 0; pos < text.size(); end = pos)
      if (is_space(next_char(text, pos))) break;
    parts.push_back(text.substr(0, end));
    text = strip_left(text.substr(end));
  }
  return parts;
}

std::vector<std::string_view> rsplit_space(std::string_view text, int64_t max_splits) {
  std::vector<std::string_view> parts;
  text = strip_right(text);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) >= max_splits) {
      parts.push_back(text);
      break;
    }
    size_t begin = text.size();
    for (size_t at; begin > 0; begin = at)
      if (is_space(last_char(text.substr(0, begin), at))) break;
    parts.push_back(text.substr(begin));
    text = strip_right(text.substr(0, begin));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t max_splits) {
  std::vector<std::string_view> parts;
  for (size_t at; max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits;) {
    if ((at = text.find(separator)) == std::string::npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> rsplit_at(std::string_view text, std::string_view separator, int64_t max_splits) {
  std::vector<std::string_view> parts;
  for (size_t at; max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits;) {
    if ((at = text.rfind(separator)) == std::string::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t at = pos;
    const uint32_t c = next_char(text, pos);
    if (!is_line_break(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(text.substr(begin, (keep_ends ? pos : at) - begin));
    begin = pos;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

namespace {

/// Calls visit(part, is_match) along the text. An empty `from` matches before every character and at the end.
template <class Visit>
void for_each_replacement(std::string_view text, std::string_view from, int64_t max_count, Visit&& visit) {
  int64_t count = 0;
  const auto may_replace = [&] { return max_count < 0 || count < max_count; };
  size_t done = 0;
  if (from.empty()) {
    while (may_replace()) {
      visit(std::string_view(), true);
      ++count;
      if (done >= text.size()) return;
      const size_t begin = done;
      next_char(text, done);
      visit(text.substr(begin, done - begin), false);
    }
  } else {
    for (size_t at; may_replace() && (at = text.find(from, done)) != std::string::npos;
         done = at + from.size(), ++count) {
      visit(text.substr(done, at - done), false);
      visit(std::string_view(), true);
    }
  }
  visit(text.substr(done), false);
}

}  // namespace

size_t replaced_bytes(std::string_view text, std::string_view from, std::string_view to, int64_t max_count) {
  size_t bytes = 0;
  for_each_replacement(text, from, max_count,
                       [&](std::string_view part, bool is_match) { bytes += is_match ? to.size() : part.size(); });
  return bytes;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to, int64_t max_count) {
  std::string out;
  for_each_replacement(text, from, max_count,
                       [&](std::string_view part, bool is_match) { out.append(is_match ? to : part); });
  return out;
}

void append_repr(std::string& out, std::string_view text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  out += quote;
  for (size_t pos = 0; pos < text.size();) {
    const size_t at = pos;
    const uint32_t c = next_char(text, pos);
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out.append(text.substr(at, pos - at));
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", c);
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += fmt::format("\\U{:08x}", c);
    }
  }
  out += quote;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));  // written as [-]d[.ddd]e[+-]dd
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  const int size = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (size > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;  // digits before the point
  if (exponent + 1 >= size) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace redline::jinja
