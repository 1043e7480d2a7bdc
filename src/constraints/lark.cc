#include "constraints/lark.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/ascii.h"
#include "constraints/regex_syntax.h"
#include "text/unicode.h"

namespace redline {
namespace {

constexpr int kMaxLarkDepth = 200;

struct CommonTerminal {
  const char* name;
  const char* regex;
};
/// The terminals of Lark's module `common`, as regular expressions.
constexpr CommonTerminal kCommonTerminals[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", R"([0-9]+\.[0-9]*|\.[0-9]+)"},
    {"FLOAT", R"([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"SIGNED_FLOAT", R"([+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?))"},
    {"NUMBER", R"([0-9]+([eE][+-]?[0-9]+)?|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"SIGNED_NUMBER", R"([+-]?([0-9]+([eE][+-]?[0-9]+)?|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?))"},
    {"ESCAPED_STRING", R"("([^"\\\n]|\\[^\n])*")"},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", R"([ \t]+)"},
    {"WS", R"([ \t\f\r\n]+)"},
    {"CR", R"(\r)"},
    {"LF", R"(\n)"},
    {"NEWLINE", R"((\r?\n)+)"},
    {"SH_COMMENT", R"(#[^\n]*)"},
    {"CPP_COMMENT", R"(\/\/[^\n]*)"},
    {"C_COMMENT", R"(\/\*[^*]*\*+([^/*][^*]*\*+)*\/)"},
    {"SQL_COMMENT", R"(--[^\n]*)"},
};

class LarkParser {
 public:
  LarkParser(std::string_view text, CompileDeadline& deadline) : text_(text), deadline_(deadline) {}

  Result<Grammar> parse() {
    ignored_ = g_.add_rule("%ignore");
    for (skip_lines(); pos_ < text_.size(); skip_lines()) {
      if (peek() == '%') {
        REDLINE_TRY(parse_directive());
      } else {
        REDLINE_TRY(parse_definition());
      }
    }
    for (const auto& [name, use] : names_)
      if (!g_.rules()[use.rule].body) {
        pos_ = use.position;
        return error("{} {} is not defined", is_terminal(name) ? "terminal" : "rule", name);
      }
    const auto start = names_.find("start");
    if (start == names_.end()) return invalid_argument("Lark grammar: there is no rule named start");
    REDLINE_TRY(check_terminals());
    g_.define(ignored_, ignores_.empty() ? g_.nothing() : g_.choice(ignores_));
    g_.root = g_.add_rule("root");
    g_.define(g_.root, g_.sequence({gap(), g_.call(start->second.rule)}));
    return std::move(g_);
  }

 private:
  using Expr = Grammar::Expr;
  struct Name {
    Grammar::Rule rule;
    size_t position;                 ///< offset of the first use in the text
    std::vector<std::string> names;  ///< for a terminal: names of the terminals that it uses
  };

  Status fail(Code code, const std::string& what) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < pos_ && i < text_.size(); ++i) {
      if (text_[i] == '\n') ++line, column = 1;
      else if ((static_cast<uint8_t>(text_[i]) & 0xC0) != 0x80) ++column;
    }
    return Status(code, fmt::format("Lark grammar: line {}, column {}: {}", line, column, what));
  }
  template <class... A>
  Status error(fmt::format_string<A...> text, A&&... args) const {
    return fail(Code::invalid_argument, fmt::format(text, std::forward<A>(args)...));
  }
  template <class... A>
  Status refuse(fmt::format_string<A...> text, A&&... args) const {
    return fail(Code::unsupported, fmt::format(text, std::forward<A>(args)...));
  }

  char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }
  bool next_is(std::string_view word) const { return text_.substr(pos_).starts_with(word); }
  std::string found() const {
    if (pos_ >= text_.size()) return "the end";
    if (peek() == '\n' || peek() == '\r') return "the end of the line";
    const Utf8Char c = utf8_at(text_, pos_);
    return fmt::format("\"{}\"", repair_utf8(text_.substr(pos_, c.bytes)));
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }
  static bool is_terminal(std::string_view name) {
    const size_t first = name.find_first_not_of('_');
    return first != std::string_view::npos && name[first] >= 'A' && name[first] <= 'Z';
  }

  void skip_comment() {
    while (pos_ < text_.size() && peek() != '\n') ++pos_;
  }
  void skip_spaces() {
    for (; pos_ < text_.size(); ++pos_) {
      if (next_is("//") || peek() == '#') skip_comment();
      if (peek() != ' ' && peek() != '\t' && peek() != '\r') return;
    }
  }
  void skip_lines() {
    for (;; ++pos_) {
      skip_spaces();
      if (peek() != '\n') return;
    }
  }
  /// Moves to the next line if that line continues the alternatives. Within brackets, every line does.
  void skip_to_alternative(int depth) {
    skip_spaces();
    if (peek() != '\n') return;
    const size_t end = pos_;
    skip_lines();
    if (depth == 0 && peek() != '|') pos_ = end;
  }

  Result<std::string> parse_name() {
    const size_t begin = pos_;
    while (is_word(peek())) ++pos_;
    if (pos_ == begin || is_digit(text_[begin])) {
      pos_ = begin;
      return error("expected a name, found {}", found());
    }
    return std::string(text_.substr(begin, pos_ - begin));
  }
  Name& named(const std::string& name, size_t position) {
    const auto [found, is_new] = names_.try_emplace(name, Name{0, position, {}});
    if (is_new) found->second.rule = g_.add_rule(name);
    return found->second;
  }
  Result<uint32_t> parse_number() {
    if (!is_digit(peek())) return error("expected a number, found {}", found());
    uint64_t value = 0;
    for (; is_digit(peek()); ++pos_) {
      value = value * 10 + static_cast<uint64_t>(peek() - '0');
      if (value > 1'000'000) return error("the number is too large");
    }
    return static_cast<uint32_t>(value);
  }

  // Definitions ------------------------------------------------------------------------------------------------------

  Status parse_definition() {
    while (peek() == '?' || peek() == '!') ++pos_;  // these marks only shape Lark's tree
    const size_t begin = pos_;
    REDLINE_ASSIGN(const std::string name, parse_name());
    if (peek() == '{') return refuse("templates are not supported: {}", name);
    if (peek() == '[') return refuse("attributes of rules are not supported: {}", name);
    if (peek() == '.') {  // a priority only orders several parses of one text
      ++pos_;
      if (peek() == '-') ++pos_;
      REDLINE_TRY(parse_number().status());
    }
    skip_spaces();
    if (peek() != ':') return error("expected \":\" after {}, found {}", name, found());
    ++pos_;
    Name& definition = named(name, begin);
    const Grammar::Rule rule = definition.rule;
    if (g_.rules()[rule].body || !defined_.insert(name).second) {
      pos_ = begin;
      return error("{} is defined twice", name);
    }
    in_terminal_ = is_terminal(name);
    used_.clear();
    REDLINE_ASSIGN(const Expr body, parse_choice(0));
    skip_spaces();
    if (pos_ < text_.size() && peek() != '\n') return error("expected the end of {}, found {}", name, found());
    g_.define(rule, body);
    if (in_terminal_) names_.at(name).names = std::move(used_);
    return {};
  }

  Status parse_directive() {
    const size_t begin = pos_++;
    REDLINE_ASSIGN(const std::string name, parse_name());
    skip_spaces();
    if (name == "ignore") {
      in_terminal_ = true;
      REDLINE_ASSIGN(const Expr ignored, parse_choice(0));
      ignores_.push_back(ignored);
      return {};
    }
    if (name == "import") return parse_import();
    pos_ = begin;
    return refuse("%{} is not supported", name);
  }

  Status parse_import() {
    const size_t begin = pos_;
    if (peek() == '.') return refuse("only common can be imported");
    REDLINE_ASSIGN(const std::string module, parse_name());
    if (module != "common") {
      pos_ = begin;
      return refuse("only common can be imported, not {}", module);
    }
    skip_spaces();
    if (peek() == '(') {
      do {
        ++pos_;
        skip_lines();
        REDLINE_TRY(import_terminal(false));
        skip_lines();
      } while (peek() == ',');
      if (peek() != ')') return error("expected \")\", found {}", found());
      ++pos_;
      return {};
    }
    if (peek() != '.') return error("expected \".\" after common, found {}", found());
    ++pos_;
    return import_terminal(true);
  }

  Status import_terminal(bool may_rename) {
    const size_t begin = pos_;
    REDLINE_ASSIGN(const std::string name, parse_name());
    std::string alias = name;
    skip_spaces();
    if (may_rename && next_is("->")) {
      pos_ += 2;
      skip_spaces();
      REDLINE_ASSIGN(alias, parse_name());
    }
    for (const CommonTerminal& terminal : kCommonTerminals) {
      if (name != terminal.name) continue;
      const Grammar::Rule rule = named(alias, begin).rule;
      if (g_.rules()[rule].body || !defined_.insert(alias).second) {
        pos_ = begin;
        return error("{} is defined twice", alias);
      }
      REDLINE_ASSIGN(const RegexSyntax regex, RegexSyntax::parse(terminal.regex));
      REDLINE_ASSIGN(const Grammar::Expr whole, regex.whole(g_, deadline_));
      g_.define(rule, whole);
      return {};
    }
    pos_ = begin;
    return error("common has no terminal {}", name);
  }

  /// Checks that no terminal uses itself, because terminals are regular.
  Status check_terminals() {
    std::map<std::string, int> states;  // state of each check: 1 in progress, 2 done
    for (const auto& [name, ignored] : names_) {
      if (!is_terminal(name) || states[name] == 2) continue;
      std::vector<std::pair<std::string, size_t>> path = {{name, 0}};
      states[name] = 1;
      while (!path.empty()) {
        auto& [current, next] = path.back();
        const std::vector<std::string>& uses = names_.at(current).names;
        if (next == uses.size()) {
          states[current] = 2;
          path.pop_back();
          continue;
        }
        const std::string& used = uses[next++];
        if (!is_terminal(used)) {
          return invalid_argument("Lark grammar: terminal {} uses the rule {}; terminals use terminals only", current,
                                  used);
        }
        if (states[used] == 1)
          return invalid_argument("Lark grammar: terminal {} uses itself; write a rule instead", used);
        if (states[used] == 0) {
          states[used] = 1;
          path.emplace_back(used, 0);
        }
      }
    }
    return {};
  }

  // Expressions ------------------------------------------------------------------------------------------------------

  /// Returns an expression for the ignored terminals that may follow a terminal.
  Expr gap() { return g_.repeat(g_.call(ignored_), 0, Grammar::kUnbounded); }
  Expr terminal(Expr expr) { return in_terminal_ ? expr : g_.sequence({expr, gap()}); }

  Result<Expr> parse_choice(int depth) {
    if (depth > kMaxLarkDepth) return error("groups are nested more than {} deep", kMaxLarkDepth);
    std::vector<Expr> items;
    skip_to_alternative(depth);  // an empty alternative may be the first
    for (;; ++pos_) {
      REDLINE_ASSIGN(const Expr item, parse_sequence(depth));
      items.push_back(item);
      skip_to_alternative(depth);
      if (peek() != '|') break;
    }
    return g_.choice(std::move(items));
  }

  Result<Expr> parse_sequence(int depth) {
    std::vector<Expr> items;
    for (;;) {
      REDLINE_TRY(deadline_.check());
      if (depth > 0) skip_lines();
      else skip_spaces();
      if (next_is("->")) {  // an alias only names a branch of Lark's tree
        pos_ += 2;
        skip_spaces();
        REDLINE_TRY(parse_name().status());
        break;
      }
      const char c = peek();
      if (c == '(' || c == '[') {
        ++pos_;
        REDLINE_ASSIGN(Expr group, parse_choice(depth + 1));
        skip_lines();
        if (peek() != (c == '(' ? ')' : ']')) return error("expected \"{}\", found {}", c == '(' ? ')' : ']', found());
        ++pos_;
        if (c == '[') group = g_.optional(group);
        items.push_back(group);
      } else if (c == '"') {
        REDLINE_ASSIGN(const Expr text, parse_text());
        items.push_back(terminal(text));
      } else if (c == '/' && peek(1) != '/') {
        REDLINE_ASSIGN(const Expr regex, parse_regex());
        items.push_back(terminal(regex));
      } else if (is_word(c)) {
        const size_t begin = pos_;
        REDLINE_ASSIGN(const std::string name, parse_name());
        if (peek() == '{') return refuse("templates are not supported: {}", name);
        // A bracket right after the name is an attribute; a group in brackets has a space before it.
        if (peek() == '[') return refuse("attributes are not supported: {}", name);
        used_.push_back(name);
        const Expr call = g_.call(named(name, begin).rule);
        items.push_back(is_terminal(name) ? terminal(call) : call);
      } else if (c == '%') {
        return refuse("{} within a rule is not supported",
                      text_.substr(pos_, std::min<size_t>(8, text_.size() - pos_)));
      } else {
        break;
      }
      REDLINE_ASSIGN(items.back(), parse_repetitions(items.back()));
    }
    return g_.sequence(std::move(items));
  }

  Result<Expr> parse_repetitions(Expr item) {
    for (int count = 0;; ++count) {
      if (count > kMaxLarkDepth) return error("more than {} repetitions of one item", kMaxLarkDepth);
      const char c = peek();
      if (c == '?' || c == '*' || c == '+') {
        ++pos_;
        item = g_.repeat(item, c == '+' ? 1 : 0, c == '?' ? 1 : Grammar::kUnbounded);
        continue;
      }
      const size_t before = pos_;
      skip_spaces();
      if (peek() != '~') {
        pos_ = before;
        return item;
      }
      const size_t begin = pos_++;
      skip_spaces();
      REDLINE_ASSIGN(const uint32_t least, parse_number());
      uint32_t greatest = least;
      skip_spaces();
      if (next_is("..")) {
        pos_ += 2;
        skip_spaces();
        REDLINE_ASSIGN(greatest, parse_number());
      }
      if (greatest < least) {
        pos_ = begin;
        return error("~{}..{}: the least number is greater than the greatest", least, greatest);
      }
      item = g_.repeat(item, least, greatest);
    }
  }

  /// Parses "a", "a"i, or "a".."z".
  Result<Expr> parse_text() {
    REDLINE_ASSIGN(const std::string first, parse_string());
    if (next_is("..")) {
      const size_t begin = pos_;
      pos_ += 2;
      if (peek() != '"') return error("expected a string after \"..\", found {}", found());
      REDLINE_ASSIGN(const std::string last, parse_string());
      const Utf8Char lo = utf8_at(first, 0), hi = utf8_at(last, 0);
      if (first.empty() || last.empty() || lo.bytes != first.size() || hi.bytes != last.size() || hi.value < lo.value) {
        pos_ = begin;
        return error("a range goes from one character to a later one");
      }
      return g_.chars({{lo.value, hi.value}});
    }
    if (peek() != 'i' || is_word(peek(1))) return g_.bytes(first);
    ++pos_;
    std::vector<Expr> letters;
    for (size_t at = 0; at < first.size();) {
      const Utf8Char c = utf8_at(first, at);
      at += c.bytes;
      CharSet set = {{c.value, c.value}};
      if (c.value >= 'a' && c.value <= 'z') set.push_back({c.value - 32, c.value - 32});
      if (c.value >= 'A' && c.value <= 'Z') set.push_back({c.value + 32, c.value + 32});
      if (c.value >= 0x80) return refuse("flag i is not supported for characters outside ASCII");
      letters.push_back(g_.chars(set));
    }
    return g_.sequence(std::move(letters));
  }

  Result<std::string> parse_string() {
    const size_t begin = pos_++;
    std::string value;
    while (peek() != '"') {
      if (pos_ >= text_.size() || peek() == '\n') {
        pos_ = begin;
        return error("the string does not end");
      }
      if (peek() != '\\') {
        const Utf8Char c = utf8_at(text_, pos_);
        if (!c.valid) return error("the text is not UTF-8");
        value += text_.substr(pos_, c.bytes);
        pos_ += c.bytes;
        continue;
      }
      REDLINE_TRY(parse_escape(value));
    }
    ++pos_;
    return value;
  }

  Status parse_escape(std::string& value) {
    const size_t begin = pos_++;
    const char c = peek();
    ++pos_;
    constexpr std::string_view kNames = "nrtfvba0\\\"'/";
    constexpr std::string_view kValues("\n\r\t\f\v\b\a\0\\\"'/", kNames.size());
    if (const size_t at = kNames.find(c); at != std::string_view::npos) {
      value.push_back(kValues[at]);
      return {};
    }
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      pos_ = begin;
      return error("unknown escape; there are \\n \\r \\t \\f \\v \\b \\a \\0 \\\\ \\\" \\xHH \\uHHHH \\UHHHHHHHH");
    }
    uint32_t code = 0;
    for (int i = 0; i < digits; ++i, ++pos_) {
      const int digit = hex_digit(peek());
      if (digit < 0) return error("expected {} hexadecimal digits, found {}", digits, found());
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    if (code > kMaxChar || (code >= 0xD800 && code <= 0xDFFF)) {
      pos_ = begin;
      return error("U+{:04X} is not a character", code);
    }
    append_utf8(value, code);
    return {};
  }

  Result<Expr> parse_regex() {
    const size_t begin = pos_++;
    std::string pattern;
    bool in_class = false;
    for (; peek() != '/'; ++pos_) {
      if (pos_ >= text_.size() || peek() == '\n') {
        pos_ = begin;
        return error("the regular expression does not end");
      }
      pattern.push_back(peek());
      if (peek() != '\\') continue;
      ++pos_;
      if (pos_ < text_.size() && peek() != '\n') pattern.push_back(peek());
      else --pos_;
    }
    ++pos_;
    bool dot_is_any = false;
    for (; peek() >= 'a' && peek() <= 'z'; ++pos_) {
      if (peek() == 's') dot_is_any = true;
      else if (peek() != 'u') return refuse("flag {} of a regular expression is not supported", peek());
    }
    if (dot_is_any) {
      std::string any;
      for (size_t i = 0; i < pattern.size(); ++i) {
        const char c = pattern[i];
        if (c == '\\' && i + 1 < pattern.size()) {
          any += {c, pattern[++i]};
          continue;
        }
        if (c == '[') in_class = true;
        if (c == ']') in_class = false;
        if (c == '.' && !in_class) any += "[\\s\\S]";
        else any.push_back(c);
      }
      pattern = std::move(any);
    }
    Result<RegexSyntax> regex = RegexSyntax::parse(pattern);
    if (!regex.ok()) {
      pos_ = begin;
      return fail(regex.status().code(), fmt::format("/{}/: {}", pattern, regex.status().message()));
    }
    return regex->whole(g_, deadline_);
  }

  std::string_view text_;
  CompileDeadline& deadline_;
  size_t pos_ = 0;
  Grammar g_;
  Grammar::Rule ignored_ = 0;
  std::vector<Expr> ignores_;
  std::map<std::string, Name> names_;
  std::set<std::string> defined_;
  std::vector<std::string> used_;  ///< names that are used by the definition being read
  bool in_terminal_ = false;
};

}  // namespace

Result<Grammar> parse_lark(std::string_view text, CompileDeadline& deadline) {
  return LarkParser(text, deadline).parse();
}

}  // namespace redline
