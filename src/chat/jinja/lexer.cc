#include "chat/jinja/lexer.h"

#include <algorithm>
#include <cctype>

#include "base/ascii.h"
#include "chat/jinja/python_text.h"
#include "text/unicode.h"

namespace redline::jinja {
namespace {

struct Operator {
  std::string_view text;
  TokenKind kind;
};
// Longer operators come first, so that "**" is not read as two "*".
constexpr Operator kOperators[] = {
    {"//", TokenKind::kFloorDiv},   {"**", TokenKind::kPow},         {"==", TokenKind::kEq},
    {"!=", TokenKind::kNe},         {">=", TokenKind::kGe},          {"<=", TokenKind::kLe},
    {"+", TokenKind::kAdd},         {"-", TokenKind::kSub},          {"/", TokenKind::kDiv},
    {"*", TokenKind::kMul},         {"%", TokenKind::kMod},          {"~", TokenKind::kTilde},
    {"[", TokenKind::kLeftBracket}, {"]", TokenKind::kRightBracket}, {"(", TokenKind::kLeftParen},
    {")", TokenKind::kRightParen},  {"{", TokenKind::kLeftBrace},    {"}", TokenKind::kRightBrace},
    {">", TokenKind::kGt},          {"<", TokenKind::kLt},           {"=", TokenKind::kAssign},
    {".", TokenKind::kDot},         {":", TokenKind::kColon},        {"|", TokenKind::kPipe},
    {",", TokenKind::kComma},       {";", TokenKind::kSemicolon},
};

/// Returns the source with "\n" for every kind of line break, and without a line break at the end.
std::string normalize(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_digit_of(char c, int base) {
  if (base == 16) return hex_digit(c) >= 0;
  return c >= '0' && c < '0' + base;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::vector<Token>& tokens, SyntaxError& error)
      : source_(normalize(source)), text_(source_), tokens_(tokens), error_(error) {}

  bool run() {
    if (repair_utf8(text_) != text_) return fail("the template is not UTF-8");
    while (pos_ < text_.size())
      if (!read_data()) return false;
    add(TokenKind::kEnd, pos_, "");
    return true;
  }

 private:
  bool fail(std::string message) { return fail_at(pos_, std::move(message)); }
  bool fail_at(size_t at, std::string message) {
    error_ = {Code::invalid_argument, std::move(message), position_of(at)};
    return false;
  }

  Position position_of(size_t at) {
    if (at < line_begin_) {  // only errors look for an earlier position
      line_ = 1;
      line_begin_ = counted_ = 0;
    }
    for (; counted_ < at; ++counted_)
      if (text_[counted_] == '\n') {
        ++line_;
        line_begin_ = counted_ + 1;
      }
    return {line_, static_cast<uint32_t>(count_chars(text_.substr(line_begin_, at - line_begin_)) + 1)};
  }

  void add(TokenKind kind, size_t at, std::string text) { tokens_.push_back({kind, position_of(at), std::move(text)}); }

  bool at(std::string_view word) const { return text_.substr(pos_).starts_with(word); }
  void skip_spaces() {
    while (pos_ < text_.size()) {
      size_t next = pos_;
      if (!is_space(next_char(text_, next))) break;
      pos_ = next;
    }
  }

  void add_data(size_t begin, size_t end, char sign, bool may_lstrip) {
    std::string_view data = text_.substr(begin, end - begin);
    if (sign == '-') {
      data = strip_right(data);
    } else if (sign == 0 && may_lstrip) {
      const size_t line = data.rfind('\n') + 1;
      if ((line > 0 || line_starting_) && strip_left(data.substr(line)).empty()) data = data.substr(0, line);
    }
    if (!data.empty()) add(TokenKind::kData, begin, std::string(data));
  }

  /// Reads the sign of white space control, which follows "{%" or "{{". Returns '-', '+', or 0 if there is none.
  char read_sign() {
    if (pos_ < text_.size() && (text_[pos_] == '-' || text_[pos_] == '+')) return text_[pos_++];
    return 0;
  }

  /// Moves past "raw %}" and returns true if it comes next. The position is after "{%".
  bool read_raw_begin() {
    const size_t begin = pos_;
    skip_spaces();
    if (at("raw")) {
      pos_ += 3;
      skip_spaces();
      if (at("-%}")) {
        pos_ += 3;
        skip_spaces();
        return true;
      }
      if (at("%}")) {
        pos_ += 2;
        return true;
      }
    }
    pos_ = begin;
    return false;
  }

  /// Moves past `end` ("%}" or "#}") with its sign, and past the white space that it strips. Returns false if it is not
  /// at pos_.
  bool read_end(std::string_view end) {
    const size_t begin = pos_;
    const char sign = read_sign();
    if (!at(end)) {
      pos_ = begin;
      return false;
    }
    pos_ += end.size();
    if (sign == '-') skip_spaces();
    if (sign == 0 && pos_ < text_.size() && text_[pos_] == '\n') ++pos_;
    return true;
  }

  void ended_at(size_t begin) { line_starting_ = pos_ > begin && text_[pos_ - 1] == '\n'; }

  /// Reads data up to the next tag, and the tag.
  bool read_data() {
    const size_t begin = pos_;
    size_t tag = begin;
    do {
      tag = text_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= text_.size()) {
        add(TokenKind::kData, begin, std::string(text_.substr(begin)));
        pos_ = text_.size();
        return true;
      }
      ++tag;
    } while (text_[tag] != '%' && text_[tag] != '{' && text_[tag] != '#');
    const char kind = text_[tag--];
    pos_ = tag + 2;
    const char sign = read_sign();
    add_data(begin, tag, sign, kind != '{');
    if (kind == '#') return read_comment(tag);
    if (kind == '%' && read_raw_begin()) return read_raw(tag);
    add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, tag, "");
    return read_tag(kind == '%', tag);
  }

  bool read_comment(size_t tag) {
    for (size_t end = pos_; (end = text_.find("#}", end)) != std::string::npos; ++end) {
      const size_t inner = pos_;
      pos_ = end > inner && (text_[end - 1] == '-' || text_[end - 1] == '+') ? end - 1 : end;
      read_end("#}");
      ended_at(inner);
      return true;
    }
    return fail_at(tag, "missing end of comment tag");
  }

  bool read_raw(size_t tag) {
    const size_t begin = pos_;
    line_starting_ = begin > 0 && text_[begin - 1] == '\n';
    for (size_t end = begin; (end = text_.find("{%", end)) != std::string::npos; ++end) {
      pos_ = end + 2;
      const char sign = read_sign();
      skip_spaces();
      if (!at("endraw")) continue;
      pos_ += 6;
      skip_spaces();
      if (!read_end("%}")) continue;
      add_data(begin, end, sign, true);
      ended_at(begin);
      return true;
    }
    return fail_at(tag, "missing end of raw directive");
  }

  /// Reads tokens up to "%}" or "}}".
  bool read_tag(bool is_block, size_t tag) {
    std::string open;  // brackets that are not closed yet
    while (pos_ < text_.size()) {
      const size_t begin = pos_;
      if (open.empty()) {
        if (is_block && read_end("%}")) {
          add(TokenKind::kBlockEnd, begin, "");
          ended_at(begin);
          return true;
        }
        if (!is_block && (at("-}}") || at("}}"))) {
          const bool strips = text_[pos_] == '-';
          pos_ += strips ? 3 : 2;
          if (strips) skip_spaces();
          add(TokenKind::kVariableEnd, begin, "");
          ended_at(begin);
          return true;
        }
      }
      skip_spaces();
      if (pos_ > begin) continue;
      if (!read_number() && !read_name() && !read_string() && !read_operator(open)) return false;
      if (error_.code != Code::ok) return false;
    }
    return fail_at(tag, is_block ? "this tag has no end '%}'" : "this expression has no end '}}'");
  }

  /// Returns the end of the match of (\d+_)*\d+ at `from`, or `from` if there is none.
  size_t digits_end(size_t from, int base = 10) const {
    size_t end = from;
    while (end < text_.size() && is_digit_of(text_[end], base)) {
      ++end;
      if (end + 1 < text_.size() && text_[end] == '_' && is_digit_of(text_[end + 1], base)) ++end;
    }
    return end;
  }

  bool read_number() {
    const size_t begin = pos_;
    if (!std::isdigit(static_cast<unsigned char>(text_[begin]))) return false;
    size_t end = digits_end(begin);
    bool is_float = false;
    if (begin == 0 || text_[begin - 1] != '.') {
      size_t from = end;
      if (from < text_.size() && text_[from] == '.')
        if (const size_t fraction = digits_end(from + 1); fraction > from + 1) {
          from = fraction;
          is_float = true;
        }
      const size_t integer = end;
      end = from;
      if (from < text_.size() && (text_[from] == 'e' || text_[from] == 'E')) {
        size_t exponent = from + 1;
        if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
        if (const size_t exponent_end = digits_end(exponent); exponent_end > exponent) {
          end = exponent_end;
          is_float = true;
        }
      }
      if (!is_float) end = integer;
    }
    if (!is_float) {
      if (text_[begin] == '0') {  // 0x.., 0o.., 0b.., or zeros only
        const char prefix = begin + 1 < text_.size() ? ascii_lower(text_[begin + 1]) : 0;
        const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
        const size_t from = begin + 2 + (begin + 2 < text_.size() && text_[begin + 2] == '_' ? 1 : 0);
        if (base && digits_end(from, base) > from) end = digits_end(from, base);
        else end = digits_end(begin, 1);
      }
    }
    std::string digits(text_.substr(begin, end - begin));
    std::erase(digits, '_');
    pos_ = end;
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, begin, std::move(digits));
    return true;
  }

  static bool is_name_char(uint32_t c) { return c < 0x80 ? c == '_' || std::isalnum(static_cast<int>(c)) : is_word(c); }

  bool read_name() {
    const size_t begin = pos_;
    while (pos_ < text_.size()) {
      size_t next = pos_;
      if (!is_name_char(next_char(text_, next))) break;
      pos_ = next;
    }
    if (pos_ == begin) return false;
    size_t first_end = begin;
    const uint32_t first = next_char(text_, first_end);
    if (first != '_' && !is_alpha(first)) {
      fail_at(begin, "invalid character in an identifier");
      return true;
    }
    add(TokenKind::kName, begin, std::string(text_.substr(begin, pos_ - begin)));
    return true;
  }

  bool read_string() {
    const size_t begin = pos_;
    const char quote = text_[begin];
    if (quote != '\'' && quote != '"') return false;
    size_t end = begin + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) {
      fail_at(begin, "this string has no end");
      return true;
    }
    std::string value;
    if (!unescape(begin + 1, end, value)) return true;
    pos_ = end + 1;
    add(TokenKind::kString, begin, std::move(value));
    return true;
  }

  bool unescape(size_t begin, size_t end, std::string& out) {
    for (size_t i = begin; i < end;) {
      if (text_[i] != '\\') {
        out += text_[i++];
        continue;
      }
      const size_t escape = i++;
      const char c = text_[i];
      if (!is_ascii(c)) {
        // jinja2 writes the character as an escape such as \xe9 before it reads escapes. The backslash of the source
        // then quotes that of the escape, so its text remains.
        const uint32_t value = next_char(text_, i);
        out += value < 0x100     ? fmt::format("\\x{:02x}", value)
               : value < 0x10000 ? fmt::format("\\u{:04x}", value)
                                 : fmt::format("\\U{:08x}", value);
        continue;
      }
      ++i;
      switch (c) {
        case '\n': break;
        case '\\':
        case '\'':
        case '"': out += c; break;
        case 'a': out += '\a'; break;
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'v': out += '\v'; break;
        case 'x':
        case 'u':
        case 'U': {
          const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
          uint32_t value = 0;
          for (size_t k = 0; k < digits; ++k, ++i) {
            const int digit = i < end ? hex_digit(text_[i]) : -1;
            if (digit < 0) return fail_at(escape, fmt::format("an escape \\{} needs {} hexadecimal digits", c, digits));
            value = value * 16 + static_cast<uint32_t>(digit);
          }
          if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
            return fail_at(escape, fmt::format("U+{:X} is not a character", value));
          append_utf8(out, value);
          break;
        }
        case 'N':
          error_ = {Code::unsupported, "characters by name (\\N) are not supported", position_of(escape)};
          return false;
        default:
          if (c >= '0' && c <= '7') {
            uint32_t value = static_cast<uint32_t>(c - '0');
            for (int k = 0; k < 2 && i < end && text_[i] >= '0' && text_[i] <= '7'; ++k, ++i)
              value = value * 8 + static_cast<uint32_t>(text_[i] - '0');
            append_utf8(out, value);
          } else {
            out += '\\';
            out += c;
          }
      }
    }
    return true;
  }

  bool read_operator(std::string& open) {
    for (const Operator& o : kOperators) {
      if (!at(o.text)) continue;
      const char c = o.text[0];
      if (c == '(') open += ')';
      if (c == '[') open += ']';
      if (c == '{') open += '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty()) return fail(fmt::format("unexpected '{}'", c));
        if (open.back() != c) return fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
        open.pop_back();
      }
      add(o.kind, pos_, std::string(o.text));
      pos_ += o.text.size();
      return true;
    }
    size_t end = pos_;
    next_char(text_, end);
    return fail(fmt::format("unexpected character '{}'", text_.substr(pos_, end - pos_)));
  }

  const std::string source_;
  const std::string_view text_;
  std::vector<Token>& tokens_;
  SyntaxError& error_;
  size_t pos_ = 0;
  bool line_starting_ = true;
  uint32_t line_ = 1;
  size_t line_begin_ = 0, counted_ = 0;
};

}  // namespace

bool tokenize(std::string_view source, std::vector<Token>& tokens, SyntaxError& error) {
  return Lexer(source, tokens, error).run();
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData: return "template text";
    case TokenKind::kBlockBegin: return "'{%'";
    case TokenKind::kBlockEnd: return "'%}'";
    case TokenKind::kVariableBegin: return "'{{'";
    case TokenKind::kVariableEnd: return "'}}'";
    case TokenKind::kName: return fmt::format("'{}'", token.text);
    case TokenKind::kString: return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat: return fmt::format("the number {}", token.text);
    case TokenKind::kEnd: return "the end of the template";
    default: return fmt::format("'{}'", token.text);
  }
}

}  // namespace redline::jinja
