#include "constraints/gbnf.h"

#include <map>

#include "base/ascii.h"
#include "text/unicode.h"

namespace redline {
namespace {

constexpr int kMaxGbnfDepth = 200;

class GbnfParser {
 public:
  GbnfParser(std::string_view text, const TokenTrie& trie, CompileDeadline& deadline)
      : text_(text), trie_(trie), deadline_(deadline) {}

  Result<Grammar> parse() {
    skip_space(true);
    while (pos_ < text_.size()) REDLINE_TRY(parse_rule());
    for (const auto& [name, use] : rules_)
      if (!grammar_.rules()[use.rule].body) {
        pos_ = use.position;
        return error("rule {} is not defined", name);
      }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return invalid_argument("grammar: there is no rule named root");
    grammar_.root = root->second.rule;
    return std::move(grammar_);
  }

 private:
  struct Use {
    Grammar::Rule rule;
    size_t position;
  };

  template <class... A>
  Status error(fmt::format_string<A...> text, A&&... args) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < pos_ && i < text_.size(); ++i) {
      if (text_[i] == '\n') ++line, column = 1;
      else if ((static_cast<uint8_t>(text_[i]) & 0xC0) != 0x80) ++column;
    }
    return invalid_argument("grammar: line {}, column {}: {}", line, column,
                            fmt::format(text, std::forward<A>(args)...));
  }
  char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }
  bool at_end() const { return pos_ >= text_.size(); }
  std::string found() const {
    if (at_end()) return "the end";
    const Utf8Char c = utf8_at(text_, pos_);
    return c.value < 0x20 ? fmt::format("character {:#x}", c.value)
                          : fmt::format("\"{}\"", repair_utf8(text_.substr(pos_, c.bytes)));
  }

  void skip_space(bool newlines) {
    for (; !at_end(); ++pos_) {
      const char c = peek();
      if (c == '#') {
        while (!at_end() && peek() != '\r' && peek() != '\n') ++pos_;
        --pos_;
      } else if (c != ' ' && c != '\t' && !(newlines && (c == '\r' || c == '\n'))) {
        return;
      }
    }
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || is_digit(c);
  }

  Result<std::string> parse_name() {
    const size_t begin = pos_;
    while (is_word(peek())) ++pos_;
    if (pos_ == begin) return error("expected the name of a rule, found {}", found());
    return std::string(text_.substr(begin, pos_ - begin));
  }
  Grammar::Rule rule_named(const std::string& name, size_t position) {
    const auto [found, is_new] = rules_.try_emplace(name, Use{0, position});
    if (is_new) found->second.rule = grammar_.add_rule(name);
    return found->second.rule;
  }

  Status parse_rule() {
    const size_t begin = pos_;
    REDLINE_ASSIGN(const std::string name, parse_name());
    skip_space(false);
    if (text_.substr(pos_, 3) != "::=") return error("expected \"::=\" after {}, found {}", name, found());
    pos_ += 3;
    skip_space(true);
    const Grammar::Rule rule = rule_named(name, begin);
    REDLINE_ASSIGN(const Grammar::Expr body, parse_choice(0));
    if (!at_end() && peek() != '\r' && peek() != '\n') return error("expected the end of the rule, found {}", found());
    grammar_.define(rule, body);
    skip_space(true);
    return {};
  }

  Result<Grammar::Expr> parse_choice(int depth) {
    if (depth > kMaxGbnfDepth) return error("groups are nested more than {} deep", kMaxGbnfDepth);
    std::vector<Grammar::Expr> items;
    REDLINE_ASSIGN(const Grammar::Expr first, parse_sequence(depth));
    items.push_back(first);
    while (peek() == '|') {
      ++pos_;
      skip_space(true);
      REDLINE_ASSIGN(const Grammar::Expr next, parse_sequence(depth));
      items.push_back(next);
    }
    return grammar_.choice(std::move(items));
  }

  Result<Grammar::Expr> parse_sequence(int depth) {
    std::vector<Grammar::Expr> items;
    int repetitions = 0;  // number of repetitions of the last item, which nest
    while (!at_end()) {
      REDLINE_TRY(deadline_.check());
      const char c = peek();
      if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (items.empty()) return error("\"{}\" repeats nothing", c);
        if (++repetitions > kMaxGbnfDepth) return error("more than {} repetitions of one item", kMaxGbnfDepth);
        REDLINE_ASSIGN(const Bounds bounds, parse_bounds(depth > 0));
        items.back() = grammar_.repeat(items.back(), bounds.least, bounds.greatest);
        skip_space(depth > 0);
        continue;
      }
      Grammar::Expr item;
      if (c == '"') {
        REDLINE_ASSIGN(item, parse_literal());
      } else if (c == '[') {
        REDLINE_ASSIGN(item, parse_class());
      } else if (c == '.') {
        ++pos_;
        item = grammar_.chars({{0, kMaxChar}});
      } else if (c == '(') {
        ++pos_;
        skip_space(true);
        REDLINE_ASSIGN(item, parse_choice(depth + 1));
        if (peek() != ')') return error("expected \")\", found {}", found());
        ++pos_;
      } else if (c == '<' || c == '!') {
        REDLINE_ASSIGN(item, parse_token());
      } else if (is_word(c)) {
        const size_t begin = pos_;
        REDLINE_ASSIGN(const std::string name, parse_name());
        item = grammar_.call(rule_named(name, begin));
      } else {
        break;
      }
      items.push_back(item);
      repetitions = 0;
      skip_space(depth > 0);
    }
    return grammar_.sequence(std::move(items));
  }

  struct Bounds {
    uint32_t least, greatest;
  };
  Result<uint32_t> parse_number() {
    if (!is_digit(peek())) return error("expected a number, found {}", found());
    uint64_t value = 0;
    const size_t begin = pos_;
    for (; is_digit(peek()); ++pos_)
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), UINT32_MAX);
    if (value >= UINT32_MAX) {
      pos_ = begin;
      return error("the number is too large");
    }
    return static_cast<uint32_t>(value);
  }
  Result<Bounds> parse_bounds(bool newlines) {
    const char c = text_[pos_++];
    if (c == '*') return Bounds{0, Grammar::kUnbounded};
    if (c == '+') return Bounds{1, Grammar::kUnbounded};
    if (c == '?') return Bounds{0, 1};
    const size_t begin = pos_ - 1;
    skip_space(newlines);
    REDLINE_ASSIGN(const uint32_t least, parse_number());
    Bounds bounds{least, least};
    skip_space(newlines);
    if (peek() == ',') {
      ++pos_;
      skip_space(newlines);
      bounds.greatest = Grammar::kUnbounded;
      if (is_digit(peek())) {
        REDLINE_ASSIGN(bounds.greatest, parse_number());
      }
      skip_space(newlines);
    }
    if (peek() != '}') return error("expected \"}}\", found {}", found());
    ++pos_;
    if (bounds.greatest < bounds.least) {
      pos_ = begin;
      return error("{{{},{}}}: the least number is greater than the greatest", bounds.least, bounds.greatest);
    }
    return bounds;
  }

  Result<uint32_t> parse_hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++pos_) {
      const int digit = hex_digit(peek());
      if (digit < 0) return error("expected {} hexadecimal digits, found {}", digits, found());
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    return value;
  }
  Result<uint32_t> parse_char() {
    if (at_end()) return error("the grammar ends within a literal or a class");
    if (peek() != '\\') {
      const Utf8Char c = utf8_at(text_, pos_);
      if (!c.valid) return error("the text is not UTF-8");
      pos_ += c.bytes;
      return c.value;
    }
    const size_t begin = pos_++;
    const char c = peek();
    ++pos_;
    uint32_t value = static_cast<uint8_t>(c);
    switch (c) {
      case 'x': {
        REDLINE_ASSIGN(value, parse_hex(2));
        break;
      }
      case 'u': {
        REDLINE_ASSIGN(value, parse_hex(4));
        break;
      }
      case 'U': {
        REDLINE_ASSIGN(value, parse_hex(8));
        break;
      }
      case 't': value = '\t'; break;
      case 'r': value = '\r'; break;
      case 'n': value = '\n'; break;
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-': break;
      default: pos_ = begin; return error("unknown escape; there are \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\-");
    }
    if (value > kMaxChar || (value >= 0xD800 && value <= 0xDFFF)) {
      pos_ = begin;
      return error("U+{:04X} is not a character", value);
    }
    return value;
  }

  Result<Grammar::Expr> parse_literal() {
    ++pos_;
    std::string literal;
    while (peek() != '"' || at_end()) {
      REDLINE_ASSIGN(const uint32_t c, parse_char());
      append_utf8(literal, c);
    }
    ++pos_;
    return grammar_.bytes(literal);
  }

  Result<Grammar::Expr> parse_class() {
    const size_t begin = pos_++;
    const bool negated = peek() == '^';
    if (negated) ++pos_;
    CharSet set;
    while (peek() != ']' || at_end()) {
      const size_t at = pos_;
      REDLINE_ASSIGN(const uint32_t lo, parse_char());
      uint32_t hi = lo;
      if (peek() == '-' && peek(1) != ']' && pos_ + 1 < text_.size()) {
        ++pos_;
        REDLINE_ASSIGN(hi, parse_char());
      }
      if (hi < lo) {
        pos_ = at;
        return error("the range ends before it begins");
      }
      set.push_back({lo, hi});
    }
    ++pos_;
    if (set.empty() && !negated) {
      pos_ = begin;
      return error("the class has no characters");
    }
    return grammar_.chars(negated ? complement(set) : set);
  }

  Result<Grammar::Expr> parse_token() {
    const size_t begin = pos_;
    const bool negated = peek() == '!';
    if (negated) ++pos_;
    if (peek() != '<') return error("expected \"<\", found {}", found());
    int64_t id = -1;
    if (peek(1) == '[') {
      pos_ += 2;
      REDLINE_ASSIGN(id, parse_number());
      if (text_.substr(pos_, 2) != "]>") return error("expected \"]>\", found {}", found());
      pos_ += 2;
      if (id >= trie_.vocab_size()) {
        pos_ = begin;
        return error("token {} is outside the vocabulary of {}", id, trie_.vocab_size());
      }
    } else {
      const size_t end = text_.find('>', pos_);
      if (end == std::string::npos) return error("expected \">\" after the name of a token");
      const std::string_view name = text_.substr(pos_, end + 1 - pos_);
      id = trie_.find_name(name);
      if (id < 0) return error("{} is not one token of the vocabulary", repair_utf8(name));
      pos_ = end + 1;
    }
    return grammar_.token(static_cast<int32_t>(id), negated);
  }

  std::string_view text_;
  const TokenTrie& trie_;
  CompileDeadline& deadline_;
  size_t pos_ = 0;
  Grammar grammar_;
  std::map<std::string, Use> rules_;
};

}  // namespace

Result<Grammar> parse_gbnf(std::string_view text, const TokenTrie& trie, CompileDeadline& deadline) {
  return GbnfParser(text, trie, deadline).parse();
}

}  // namespace redline
