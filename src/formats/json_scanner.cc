#include "formats/json_scanner.h"

#include <charconv>

#include "base/ascii.h"

namespace redline {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Value of the four hex digits after "\u"; -1 if invalid.
int hex_unit(std::string_view digits) {
  if (digits.size() < 4) return -1;
  int unit = 0;
  for (const char c : digits.substr(0, 4)) {
    if (hex_digit(c) < 0) return -1;
    unit = unit * 16 + hex_digit(c);
  }
  return unit;
}

void append_utf8(std::string& out, uint32_t c) {
  const auto byte = [&](uint32_t value) { out += static_cast<char>(value); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) return byte(0xc0 | c >> 6), byte(0x80 | (c & 0x3f));
  if (c < 0x10000) return byte(0xe0 | c >> 12), byte(0x80 | (c >> 6 & 0x3f)), byte(0x80 | (c & 0x3f));
  byte(0xf0 | c >> 18), byte(0x80 | (c >> 12 & 0x3f)), byte(0x80 | (c >> 6 & 0x3f)), byte(0x80 | (c & 0x3f));
}

/// Returns the text of a JSON string. `body`, the part between the quotes, was validated by scan_string. An unpaired
/// surrogate becomes U+FFFD.
std::string unescape(std::string_view body) {
  std::string out;
  out.reserve(body.size());
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      out += body[i];
      continue;
    }
    switch (const char c = body[++i]) {
      case 'b': out += '\b'; break;
      case 'f': out += '\f'; break;
      case 'n': out += '\n'; break;
      case 'r': out += '\r'; break;
      case 't': out += '\t'; break;
      case 'u': {
        auto unit = static_cast<uint32_t>(hex_unit(body.substr(i + 1)));
        i += 4;
        if (unit >= 0xd800 && unit < 0xdc00 && body.substr(i + 1, 2) == "\\u") {
          const int low = hex_unit(body.substr(i + 3));
          if (low >= 0xdc00 && low < 0xe000) {
            unit = 0x10000 + ((unit - 0xd800) << 10) + (static_cast<uint32_t>(low) - 0xdc00);
            i += 6;
          }
        }
        append_utf8(out, unit >= 0xd800 && unit < 0xe000 ? 0xfffd : unit);
        break;
      }
      default: out += c;  // quote, backslash, slash
    }
  }
  return out;
}

}  // namespace

char JsonScanner::peek() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
    ++at_;
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonScanner::accept(char c) {
  if (peek() != c) return false;
  ++at_;
  return true;
}

Status JsonScanner::expect(char c) {
  if (accept(c)) return {};
  if (at_ >= text_.size()) return error("the JSON text ends early, '{}' was expected", c);
  return error("expected '{}', found {}", c, in_quotes(text_.substr(at_, 1)));
}

Status JsonScanner::scan_string(std::string_view& body) {
  REDLINE_TRY(expect('"'));
  const size_t start = at_;
  for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
    if (static_cast<unsigned char>(text_[at_]) < 0x20) return error("a control character inside a JSON string");
    if (text_[at_] != '\\') continue;
    const char escaped = ++at_ < text_.size() ? text_[at_] : '\0';
    if (escaped == 'u' ? hex_unit(text_.substr(at_ + 1)) < 0 : escaped == '\0' || !std::strchr("\"\\/bfnrt", escaped))
      return error("a wrong escape in a JSON string");
    if (escaped == 'u') at_ += 4;
  }
  if (at_ >= text_.size()) return error("the JSON text ends inside a string");
  body = text_.substr(start, at_ - start);
  ++at_;
  return {};
}

Result<std::string> JsonScanner::string(size_t max_bytes) {
  std::string_view body;
  REDLINE_TRY(scan_string(body));
  if (body.size() > max_bytes) return error("a name of {} bytes, at most {} are allowed", body.size(), max_bytes);
  return unescape(body);
}

Status JsonScanner::skip_number() {
  const auto digits = [&] {
    const size_t before = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ > before;
  };
  const auto one_of = [&](std::string_view set) {
    const bool is = at_ < text_.size() && set.find(text_[at_]) != std::string_view::npos;
    at_ += is ? 1 : 0;
    return is;
  };
  one_of("-");
  if (!one_of("0") && !digits()) return error("not a JSON value");
  if (one_of(".") && !digits()) return error("a number without digits after its point");
  if (one_of("eE")) {
    one_of("+-");
    if (!digits()) return error("a number without digits in its exponent");
  }
  return {};
}

Result<int64_t> JsonScanner::natural() {
  const char first = peek();
  const size_t start = at_;
  if (!is_digit(first)) return error("expected a number of at least 0");
  REDLINE_TRY(skip_number());
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text_.data() + start, text_.data() + at_, value);
  if (problem != std::errc() || end != text_.data() + at_)
    return error("{} is not a whole number below 2^63", in_quotes(text_.substr(start, at_ - start)));
  return value;
}

Status JsonScanner::skip_scalar() {
  const char first = peek();
  if (first == '"') {
    std::string_view body;
    return scan_string(body);
  }
  for (const std::string_view word : {"true", "false", "null"}) {
    if (text_.substr(at_, word.size()) == word) {
      at_ += word.size();
      return {};
    }
  }
  if (first == '\0' && at_ >= text_.size()) return error("the JSON text ends early, a value was expected");
  return skip_number();
}

Status JsonScanner::skip() {
  char open[kMaxDepth];  // pending closing brackets
  int depth = 0;
  while (true) {
    // The scanner is at the start of a value.
    const char first = peek();
    if (first == '{' || first == '[') {
      if (depth == kMaxDepth) return error("JSON nested more than {} deep", kMaxDepth);
      ++at_;
      open[depth++] = first == '{' ? '}' : ']';
      if (peek() != open[depth - 1]) {
        if (first == '[') continue;
        std::string_view key;
        REDLINE_TRY(scan_string(key));
        REDLINE_TRY(expect(':'));
        continue;
      }
    } else {
      REDLINE_TRY(skip_scalar());
    }
    // After a value, or in an empty container: close finished containers and find the next value.
    while (depth > 0 && accept(open[depth - 1])) --depth;
    if (depth == 0) return {};
    REDLINE_TRY(expect(','));
    if (open[depth - 1] == '}') {
      std::string_view key;
      REDLINE_TRY(scan_string(key));
      REDLINE_TRY(expect(':'));
    }
  }
}

Status JsonScanner::end() {
  if (peek() != '\0' || at_ < text_.size()) return error("more text after the end of the JSON value");
  return {};
}

}  // namespace redline
