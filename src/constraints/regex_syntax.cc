// The parser of regular expressions, and their conversion to a grammar. The file has over 600 lines because both walk
// the same tree of nodes.
#include "constraints/regex_syntax.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <map>

#include "text/unicode.h"

namespace redline {
namespace {

constexpr int kMaxRegexDepth = 200;
constexpr uint32_t kMaxAnchoredCopies = 16;

template <class Has>
CharSet collect(const Has& has) {
  CharSet set;
  for (uint32_t c = 0; c <= kMaxChar; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    if (!has(c)) continue;
    if (!set.empty() && set.back().hi + 1 == c) set.back().hi = c;
    else set.push_back({c, c});
  }
  return set;
}

uint32_t category_bit(uint32_t c) { return 1U << utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

CharSet category_set(uint32_t bits) {
  return collect([&](uint32_t c) { return (category_bit(c) & bits) != 0; });
}

const CharSet kAsciiDigits = {{'0', '9'}};
const CharSet kAsciiWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};

const CharSet& unicode_digits() {
  static const CharSet set = collect([](uint32_t c) { return is_decimal(c); });
  return set;
}
const CharSet& unicode_word() {
  static const CharSet set = collect([](uint32_t c) { return c == '_' || is_word(c) || is_regex_word(c); });
  return set;
}
// The characters that are white space in both standards. ECMA-262's WhiteSpace and LineTerminator also have U+FEFF;
// Python's str.isspace also has U+001C to U+001F and U+0085.
const CharSet kSpaceOfBoth = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                              {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
const CharSet kSpaceOfEither = {{9, 13},          {0x1C, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

}  // namespace

CharSet RegexSyntax::set_of(const ClassItem& item, Reading reading) {
  const bool strict = (reading == Reading::kStrict) != item.negated;
  CharSet set;
  switch (item.builtin) {
    case Builtin::kNone: set = {item.range}; break;
    case Builtin::kDigit: set = strict ? kAsciiDigits : unicode_digits(); break;
    case Builtin::kWord: set = strict ? kAsciiWord : unicode_word(); break;
    case Builtin::kSpace: set = strict ? kSpaceOfBoth : kSpaceOfEither; break;
    case Builtin::kDot:
      set = complement(strict ? CharSet{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}} : CharSet{{'\n', '\n'}});
      break;
    case Builtin::kCategory: set = category_set(item.categories); break;
  }
  return item.negated ? complement(set) : normalized(set);
}

CharSet RegexSyntax::set_of(const Class& chars, Reading reading) {
  const Reading inner = chars.negated ? (reading == Reading::kStrict ? Reading::kLoose : Reading::kStrict) : reading;
  CharSet set;
  for (const ClassItem& item : chars.items) {
    const CharSet part = set_of(item, inner);
    set.insert(set.end(), part.begin(), part.end());
  }
  return chars.negated ? complement(set) : normalized(set);
}

uint32_t RegexSyntax::add(Node node) {
  switch (node.kind) {
    case Kind::kEmpty: break;
    case Kind::kClass: node.can_be_empty = false; break;
    case Kind::kBegin:
    case Kind::kEnd:
    case Kind::kAhead:
    case Kind::kBehind: node.has_anchor = true; break;
    case Kind::kSequence:
      for (const uint32_t i : node.items) {
        node.has_anchor = node.has_anchor || nodes_[i].has_anchor;
        node.can_be_empty = node.can_be_empty && nodes_[i].can_be_empty;
      }
      break;
    case Kind::kChoice:
      node.can_be_empty = false;
      for (const uint32_t i : node.items) {
        node.has_anchor = node.has_anchor || nodes_[i].has_anchor;
        node.can_be_empty = node.can_be_empty || nodes_[i].can_be_empty;
      }
      break;
    case Kind::kRepeat:
      node.has_anchor = nodes_[node.items[0]].has_anchor;
      node.can_be_empty = node.least == 0 || nodes_[node.items[0]].can_be_empty;
      break;
  }
  nodes_.push_back(std::move(node));
  return static_cast<uint32_t>(nodes_.size() - 1);
}

class RegexParser {
 public:
  explicit RegexParser(std::string_view text) : text_(text) {}

  Result<RegexSyntax> parse() {
    for (size_t pos = 0; pos < text_.size();) {
      const Utf8Char c = utf8_at(text_, pos);
      if (!c.valid) return invalid_argument("regular expression: byte {} is not UTF-8", pos);
      chars_.push_back(c.value);
      pos += c.bytes;
    }
    REDLINE_ASSIGN(const uint32_t root, parse_choice(0));
    if (pos_ < chars_.size()) return error("\")\" closes no group");
    (void)root;
    return std::move(out_);
  }

 private:
  using Kind = RegexSyntax::Kind;
  using Builtin = RegexSyntax::Builtin;
  using ClassItem = RegexSyntax::ClassItem;

  static constexpr uint32_t kEnd = UINT32_MAX;
  uint32_t peek(size_t ahead = 0) const { return pos_ + ahead < chars_.size() ? chars_[pos_ + ahead] : kEnd; }
  bool take(uint32_t c) { return peek() == c && (++pos_, true); }
  template <class... A>
  Status error(fmt::format_string<A...> text, A&&... args) const {
    return invalid_argument("regular expression: position {}: {}", pos_ + 1,
                            fmt::format(text, std::forward<A>(args)...));
  }
  Status refused(size_t at, std::string_view what) const {
    return unsupported("regular expression: position {}: {} is not supported", at + 1, what);
  }
  uint32_t add(Kind kind, std::vector<uint32_t> items = {}) {
    RegexSyntax::Node node;
    node.kind = kind;
    node.items = std::move(items);
    return out_.add(std::move(node));
  }
  uint32_t add_class(RegexSyntax::Class chars) {
    RegexSyntax::Node node;
    node.kind = Kind::kClass;
    node.chars = std::move(chars);
    return out_.add(std::move(node));
  }
  uint32_t add_class(ClassItem item) { return add_class(RegexSyntax::Class{false, {item}}); }

  Result<uint32_t> parse_choice(int depth) {
    if (depth > kMaxRegexDepth) return error("groups are nested more than {} deep", kMaxRegexDepth);
    std::vector<uint32_t> items;
    do {
      REDLINE_ASSIGN(const uint32_t item, parse_sequence(depth));
      items.push_back(item);
    } while (take('|'));
    return add(Kind::kChoice, std::move(items));
  }

  Result<uint32_t> parse_sequence(int depth) {
    std::vector<uint32_t> items;
    while (peek() != kEnd && peek() != '|' && peek() != ')') {
      const bool is_anchor = peek() == '^' || peek() == '$';
      REDLINE_ASSIGN(uint32_t item, parse_atom(depth));
      const size_t at = pos_;
      uint32_t least = 0, greatest = 0;
      REDLINE_ASSIGN(const bool repeats, parse_quantifier(least, greatest));
      if (repeats) {
        if (is_anchor) {
          pos_ = at;
          return error("an anchor cannot be repeated");
        }
        RegexSyntax::Node node;
        node.kind = Kind::kRepeat;
        node.items = {item};
        node.least = least;
        node.greatest = greatest;
        if (out_.nodes_[item].has_anchor &&
            std::max(least, greatest == Grammar::kUnbounded ? 0 : greatest) > kMaxAnchoredCopies)
          return refused(at, "a long repetition of an anchor");
        item = out_.add(std::move(node));
      }
      items.push_back(item);
    }
    return add(Kind::kSequence, std::move(items));
  }

  Result<bool> parse_quantifier(uint32_t& least, uint32_t& greatest) {
    const size_t begin = pos_;
    if (take('*')) least = 0, greatest = Grammar::kUnbounded;
    else if (take('+')) least = 1, greatest = Grammar::kUnbounded;
    else if (take('?')) least = 0, greatest = 1;
    else if (peek() == '{') {
      REDLINE_ASSIGN(const bool is_count, parse_count(least, greatest));
      if (!is_count) return false;
    } else {
      return false;
    }
    if (take('+')) return refused(begin, "a possessive quantifier");
    take('?');
    if (peek() == '*' || peek() == '+' || peek() == '?') return error("a quantifier follows a quantifier");
    size_t next = 0;
    if (peek() == '{' && is_digit(peek(1)) && (next = 1)) return error("a quantifier follows a quantifier");
    return true;
  }
  static bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }
  // Parses {n}, {n,} or {n,m}. Anything else is a literal brace, as in ECMA-262's annex B.
  Result<bool> parse_count(uint32_t& least, uint32_t& greatest) {
    size_t p = pos_ + 1;
    const auto at = [&](size_t i) { return i < chars_.size() ? chars_[i] : kEnd; };
    const auto number = [&]() {
      uint64_t value = 0;
      for (; is_digit(at(p)); ++p) value = std::min<uint64_t>(value * 10 + at(p) - '0', UINT32_MAX);
      return value;
    };
    if (at(p) == ',' && is_digit(at(p + 1))) return error("{{,n}} has two meanings; write {{0,n}}");
    if (!is_digit(at(p))) return false;
    uint64_t lo = number(), hi = lo;
    if (at(p) == ',') {
      ++p;
      hi = is_digit(at(p)) ? number() : Grammar::kUnbounded;
      if (at(p - 1) != ',' && hi == Grammar::kUnbounded) return error("the number is too large");
    }
    if (at(p) != '}') return false;
    if (lo >= Grammar::kUnbounded) return error("the number is too large");
    if (hi < lo) return error("{{{},{}}}: the least number is greater than the greatest", lo, hi);
    least = static_cast<uint32_t>(lo);
    greatest = static_cast<uint32_t>(hi);
    pos_ = p + 1;
    return true;
  }

  Result<uint32_t> parse_atom(int depth) {
    const uint32_t c = peek();
    switch (c) {
      case '^': ++pos_; return add(Kind::kBegin);
      case '$': ++pos_; return add(Kind::kEnd);
      case '.': ++pos_; return add_class(ClassItem{.builtin = Builtin::kDot});
      case '(': return parse_group(depth);
      case '[': return parse_class();
      case '*':
      case '+':
      case '?': return error("\"{}\" repeats nothing", static_cast<char>(c));
      case '\\': {
        if (peek(1) == 'b' || peek(1) == 'B') return parse_boundary(peek(1) == 'B');
        REDLINE_ASSIGN(const ClassItem item, parse_escape(false));
        return add_class(item);
      }
      default: break;
    }
    ++pos_;
    return add_class(ClassItem{.range = {c, c}});
  }

  // Parses a word boundary: a place with a word character on one side and none on the other.
  uint32_t parse_boundary(bool negated) {
    pos_ += 2;
    const auto side = [&](Kind kind, bool is_word) {
      RegexSyntax::Node node;
      node.kind = kind;
      node.negated = !is_word;
      node.items = {add_class(ClassItem{.builtin = Builtin::kWord})};
      return out_.add(std::move(node));
    };
    std::vector<uint32_t> both;
    for (const bool before : {true, false}) {
      const uint32_t behind = side(Kind::kBehind, before), ahead = side(Kind::kAhead, before == negated);
      both.push_back(add(Kind::kSequence, {behind, ahead}));
    }
    return add(Kind::kChoice, std::move(both));
  }

  Result<uint32_t> parse_group(int depth) {
    const size_t begin = pos_++;
    if (take('?')) {
      const bool is_behind = peek() == '<' && (peek(1) == '=' || peek(1) == '!');
      if (peek() == '=' || peek() == '!' || is_behind) {
        if (is_behind) ++pos_;
        RegexSyntax::Node node;
        node.kind = is_behind ? Kind::kBehind : Kind::kAhead;
        node.negated = chars_[pos_++] == '!';
        REDLINE_ASSIGN(const uint32_t inside, parse_choice(depth + 1));
        if (!take(')')) {
          pos_ = begin;
          return error("the group is not closed");
        }
        if (out_.contains(inside, is_behind ? Kind::kEnd : Kind::kBegin))
          return refused(begin, is_behind ? "$ within look-behind" : "^ within look-ahead");
        node.items = {inside};
        return out_.add(std::move(node));
      }
      if (peek() == 'P' && (peek(1) == '=' || peek(1) == '>')) return refused(begin, "a reference to a group");
      if (peek() == '>') return refused(begin, "an atomic group");
      if (take(':')) {
      } else if (peek() == '<' || (peek() == 'P' && peek(1) == '<')) {
        while (peek() != kEnd && peek() != '>') ++pos_;
        if (!take('>')) return error("the name of a group does not end");
      } else {
        return refused(begin, "a flag or a conditional group");
      }
    }
    REDLINE_ASSIGN(const uint32_t inside, parse_choice(depth + 1));
    if (!take(')')) {
      pos_ = begin;
      return error("the group is not closed");
    }
    return inside;
  }

  Result<uint32_t> hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++pos_) {
      const uint32_t c = peek();
      const uint32_t digit = is_digit(c)              ? c - '0'
                             : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                             : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                                      : 16;
      if (digit == 16) return error("expected {} hexadecimal digits", digits);
      value = value * 16 + digit;
    }
    return value;
  }

  Result<ClassItem> parse_escape(bool in_class) {
    const size_t begin = pos_++;
    const uint32_t c = peek();
    if (c == kEnd) return error("the expression ends with a backslash");
    ++pos_;
    const auto literal = [](uint32_t value) { return ClassItem{.range = {value, value}}; };
    switch (c) {
      case 'd': return ClassItem{.builtin = Builtin::kDigit};
      case 'D': return ClassItem{.builtin = Builtin::kDigit, .negated = true};
      case 'w': return ClassItem{.builtin = Builtin::kWord};
      case 'W': return ClassItem{.builtin = Builtin::kWord, .negated = true};
      case 's': return ClassItem{.builtin = Builtin::kSpace};
      case 'S': return ClassItem{.builtin = Builtin::kSpace, .negated = true};
      case 't': return literal('\t');
      case 'n': return literal('\n');
      case 'r': return literal('\r');
      case 'f': return literal('\f');
      case 'v': return literal('\v');
      case '0':
        if (is_digit(peek())) return refused(begin, "an octal escape");
        return literal(0);
      case 'x': {
        REDLINE_ASSIGN(const uint32_t value, hex(2));
        return literal(value);
      }
      case 'c': {
        const uint32_t letter = peek() | 0x20U;
        if (letter < 'a' || letter > 'z') return error("\\c must be followed by a letter");
        ++pos_;
        return literal(letter & 0x1FU);
      }
      case 'u': {
        uint32_t value = 0;
        if (take('{')) {
          const size_t digits = pos_;
          while (peek() != '}' && peek() != kEnd && pos_ - digits <= 6) {
            REDLINE_ASSIGN(const uint32_t digit, hex(1));
            value = value * 16 + digit;
          }
          if (!take('}') || pos_ == digits + 1) return error("expected \\u{{hexadecimal digits}}");
        } else {
          REDLINE_ASSIGN(value, hex(4));
          if (value >= 0xD800 && value <= 0xDBFF && peek() == '\\' && peek(1) == 'u') {
            pos_ += 2;
            REDLINE_ASSIGN(const uint32_t low, hex(4));
            if (low < 0xDC00 || low > 0xDFFF) return error("a surrogate without its pair is not a character");
            value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
          }
        }
        if (value > kMaxChar || (value >= 0xD800 && value <= 0xDFFF)) {
          pos_ = begin;
          return error("U+{:04X} is not a character", value);
        }
        return literal(value);
      }
      case 'p':
      case 'P': return parse_category(begin, c == 'P');
      case 'b':
        if (in_class) return literal('\b');
        return refused(begin, "\\b");
      case 'k': return refused(begin, "a reference to a group");
      default: break;
    }
    if (is_digit(c)) return refused(begin, "a reference to a group");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      return refused(begin, fmt::format("\\{}", static_cast<char>(c)));
    return literal(c);
  }

  Result<ClassItem> parse_category(size_t begin, bool negated) {
    std::string name;
    if (!take('{')) return error("expected \\p{{...}}");
    while (peek() != '}' && peek() != kEnd) append_utf8(name, chars_[pos_++]);
    if (!take('}')) return error("expected \\p{{...}}");
    for (const std::string_view prefix : {"gc=", "General_Category="})
      if (name.starts_with(prefix)) name.erase(0, prefix.size());
    static const std::map<std::string, std::string> kLong = {{"Letter", "L"},
                                                             {"Uppercase_Letter", "Lu"},
                                                             {"Lowercase_Letter", "Ll"},
                                                             {"Mark", "M"},
                                                             {"Number", "N"},
                                                             {"Decimal_Number", "Nd"},
                                                             {"Punctuation", "P"},
                                                             {"Symbol", "S"},
                                                             {"Separator", "Z"},
                                                             {"Space_Separator", "Zs"},
                                                             {"Other", "C"},
                                                             {"Control", "Cc"},
                                                             {"Math_Symbol", "Sm"},
                                                             {"Currency_Symbol", "Sc"}};
    if (const auto found = kLong.find(name); found != kLong.end()) name = found->second;
    ClassItem item{.builtin = Builtin::kCategory, .negated = negated};
    for (int i = 0; i < 30; ++i) {
      // The names are in the order of utf8proc_category_t.
      static constexpr const char* kNames[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                               "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                               "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
      if (name == kNames[i] || (name.size() == 1 && name[0] == kNames[i][0])) item.categories |= 1U << i;
    }
    if (item.categories == 0)
      return refused(begin, fmt::format("\\p{{{}}} (general categories are)", repair_utf8(name)));
    return item;
  }

  Result<uint32_t> parse_class() {
    const size_t begin = pos_++;
    RegexSyntax::Class chars;
    chars.negated = take('^');
    while (peek() != ']') {
      if (peek() == kEnd) {
        pos_ = begin;
        return error("the class is not closed");
      }
      REDLINE_ASSIGN(ClassItem item, parse_class_char());
      if (peek() == '-' && peek(1) != ']' && peek(1) != kEnd) {
        const size_t at = pos_++;
        REDLINE_ASSIGN(const ClassItem last, parse_class_char());
        if (item.builtin != Builtin::kNone || last.builtin != Builtin::kNone) {
          pos_ = at;
          return error("a range between classes");
        }
        if (last.range.lo < item.range.lo) {
          pos_ = at;
          return error("the range ends before it begins");
        }
        item.range.hi = last.range.lo;
      }
      chars.items.push_back(item);
    }
    ++pos_;
    return add_class(std::move(chars));
  }
  Result<ClassItem> parse_class_char() {
    if (peek() == '\\') return parse_escape(true);
    const uint32_t c = chars_[pos_++];
    return ClassItem{.range = {c, c}};
  }

  std::string_view text_;
  std::vector<uint32_t> chars_;
  size_t pos_ = 0;
  RegexSyntax out_;
};

Result<RegexSyntax> RegexSyntax::parse(std::string_view pattern) {
  if (pattern.size() > kMaxBytes)
    return invalid_argument("the regular expression has {} bytes; at most {} are allowed", pattern.size(), kMaxBytes);
  return RegexParser(pattern).parse();
}

/// An automaton with edges for the anchors.
struct RegexSyntax::Anchored {
  enum class Edge : uint8_t { kLabel, kEmpty, kBegin, kEnd, kAssertion };
  struct Arc {
    uint32_t from, to;
    Edge kind;
    Grammar::Expr label = 0;
    bool can_be_empty = false;
  };
  uint32_t states = 0;
  std::vector<Arc> arcs;
};

Grammar::Expr RegexSyntax::plain(Grammar& grammar, uint32_t n, Reading reading) const {
  const Node& node = nodes_[n];
  switch (node.kind) {
    case Kind::kClass: {
      const CharSet set = set_of(node.chars, reading);
      if (set.size() == 1 && set[0].lo == set[0].hi) {
        std::string text;
        append_utf8(text, set[0].lo);
        return grammar.bytes(text);
      }
      return grammar.chars(set);
    }
    case Kind::kSequence:
    case Kind::kChoice: {
      std::vector<Grammar::Expr> items;
      for (const uint32_t item : node.items) items.push_back(plain(grammar, item, reading));
      return node.kind == Kind::kChoice ? grammar.choice(std::move(items)) : grammar.sequence(std::move(items));
    }
    case Kind::kRepeat: return grammar.repeat(plain(grammar, node.items[0], reading), node.least, node.greatest);
    default: return grammar.empty();
  }
}

void RegexSyntax::build(Grammar& grammar, Anchored& out, uint32_t n, Reading reading, uint32_t from,
                        uint32_t to) const {
  const Node& node = nodes_[n];
  if (!node.has_anchor) {
    out.arcs.push_back({from, to, Anchored::Edge::kLabel, plain(grammar, n, reading), node.can_be_empty});
    return;
  }
  switch (node.kind) {
    case Kind::kBegin: out.arcs.push_back({from, to, Anchored::Edge::kBegin}); return;
    case Kind::kEnd: out.arcs.push_back({from, to, Anchored::Edge::kEnd}); return;
    case Kind::kAhead:
    case Kind::kBehind: {
      const auto number = std::count_if(nodes_.begin(), nodes_.begin() + n, [](const Node& other) {
        return other.kind == Kind::kAhead || other.kind == Kind::kBehind;
      });
      out.arcs.push_back({from, to, Anchored::Edge::kAssertion, grammar.token(static_cast<int32_t>(number), false)});
      return;
    }
    case Kind::kSequence:
      for (size_t i = 0; i < node.items.size(); ++i) {
        const uint32_t next = i + 1 == node.items.size() ? to : out.states++;
        build(grammar, out, node.items[i], reading, from, next);
        from = next;
      }
      return;
    case Kind::kChoice:
      for (const uint32_t item : node.items) {
        const uint32_t own = out.states++;
        out.arcs.push_back({from, own, Anchored::Edge::kEmpty});
        build(grammar, out, item, reading, own, to);
      }
      return;
    case Kind::kRepeat: {
      for (uint32_t i = 0; i < node.least; ++i) {
        const uint32_t next = out.states++;
        build(grammar, out, node.items[0], reading, from, next);
        from = next;
      }
      if (node.greatest == Grammar::kUnbounded) {
        const uint32_t loop = out.states++, end = out.states++;
        out.arcs.push_back({from, loop, Anchored::Edge::kEmpty});
        build(grammar, out, node.items[0], reading, loop, end);
        out.arcs.push_back({end, loop, Anchored::Edge::kEmpty});
        from = loop;
      } else {
        for (uint32_t i = node.least; i < node.greatest; ++i) {
          const uint32_t next = out.states++;
          out.arcs.push_back({from, to, Anchored::Edge::kEmpty});
          build(grammar, out, node.items[0], reading, from, next);
          from = next;
        }
      }
      out.arcs.push_back({from, to, Anchored::Edge::kEmpty});
      return;
    }
    default: return;
  }
}

// The result is the product of the automaton with four phases: two flags tell that a character has been read, and that
// the end of the text has been passed.
Grammar::Expr RegexSyntax::resolve(Grammar& grammar, uint32_t root, Reading reading, bool after_any,
                                   bool before_any) const {
  const auto any = [&](bool is_wanted) {
    return is_wanted ? grammar.repeat(grammar.chars({{0, kMaxChar}}), 0, Grammar::kUnbounded) : grammar.empty();
  };
  if (!nodes_[root].has_anchor)
    return grammar.sequence({any(after_any), plain(grammar, root, reading), any(before_any)});
  Anchored a;
  a.states = 4;
  for (const auto& [from, is_any] : {std::pair(0U, after_any), std::pair(2U, before_any)}) {
    if (is_any) a.arcs.push_back({from, from + 1, Anchored::Edge::kLabel, any(true), true});
    else a.arcs.push_back({from, from + 1, Anchored::Edge::kEmpty});
  }
  build(grammar, a, root, reading, 1, 2);
  Grammar::Graph g;
  g.num_states = 4 * a.states;
  const auto at = [](uint32_t state, uint32_t phase) { return 4 * state + phase; };
  for (const Anchored::Arc& arc : a.arcs)
    for (uint32_t phase = 0; phase < 4; ++phase) {
      const bool has_read = phase & 1, has_ended = phase & 2;
      const Grammar::Expr none = grammar.empty();
      switch (arc.kind) {
        case Anchored::Edge::kEmpty: g.add(at(arc.from, phase), none, at(arc.to, phase)); break;
        case Anchored::Edge::kAssertion: g.add(at(arc.from, phase), arc.label, at(arc.to, phase)); break;
        case Anchored::Edge::kLabel:
          if (!has_ended) g.add(at(arc.from, phase), arc.label, at(arc.to, 1));
          if (arc.can_be_empty) g.add(at(arc.from, phase), none, at(arc.to, phase));
          break;
        case Anchored::Edge::kBegin:
          if (!has_read) g.add(at(arc.from, phase), none, at(arc.to, phase));
          break;
        case Anchored::Edge::kEnd: g.add(at(arc.from, phase), none, at(arc.to, phase | 2)); break;
      }
    }
  for (uint32_t phase = 0; phase < 4; ++phase) g.accepts.push_back(at(3, phase));
  return grammar.graph(std::move(g));
}

bool RegexSyntax::contains(uint32_t node, Kind kind) const {
  if (nodes_[node].kind == kind) return true;
  return std::any_of(nodes_[node].items.begin(), nodes_[node].items.end(),
                     [&](uint32_t item) { return contains(item, kind); });
}

Result<std::vector<ByteAssertion>> RegexSyntax::assertions(CompileDeadline& deadline, Reading reading) const {
  // assertions by reading; nested assertions come before the assertion that contains them
  std::array<std::vector<ByteAssertion>, 2> found;
  for (const Node& node : nodes_) {
    if (node.kind != Kind::kAhead && node.kind != Kind::kBehind) continue;
    const bool is_behind = node.kind == Kind::kBehind;
    std::array<ByteDfa, 2> languages;
    for (const Reading outer : {Reading::kStrict, Reading::kLoose}) {
      // A negated assertion must exclude every possible match, so it is read loosely.
      const Reading inner = !node.negated ? outer : outer == Reading::kStrict ? Reading::kLoose : Reading::kStrict;
      Grammar own;
      const Grammar::Expr expression = resolve(own, node.items[0], inner, is_behind, !is_behind);
      REDLINE_ASSIGN(ByteDfa language, ByteDfa::from(own, expression, found[static_cast<size_t>(inner)], deadline));
      languages[static_cast<size_t>(outer)] = node.negated ? language.complement() : std::move(language);
    }
    for (size_t i = 0; i < languages.size(); ++i) found[i].push_back({std::move(languages[i]), is_behind});
  }
  return std::move(found[static_cast<size_t>(reading)]);
}

Result<Grammar::Expr> RegexSyntax::whole(Grammar& grammar, CompileDeadline& deadline, Reading reading) const {
  REDLINE_ASSIGN(const std::vector<ByteAssertion> around, assertions(deadline, reading));
  if (around.empty()) return resolve(grammar, root(), reading, false, false);
  Grammar own;
  REDLINE_ASSIGN(const ByteDfa dfa, ByteDfa::from(own, resolve(own, root(), reading, false, false), around, deadline));
  return dfa.expression(grammar);
}

Result<ByteDfa> RegexSyntax::search(CompileDeadline& deadline, Reading reading) const {
  REDLINE_ASSIGN(const std::vector<ByteAssertion> around, assertions(deadline, reading));
  Grammar own;
  return ByteDfa::from(own, resolve(own, root(), reading, true, true), around, deadline);
}

std::optional<RegexSyntax::CountedClass> RegexSyntax::as_counted_class() const {
  // Returns the node inside choices and sequences of one item, which match the same as their item.
  const auto inside = [&](uint32_t n) {
    while ((nodes_[n].kind == Kind::kChoice || nodes_[n].kind == Kind::kSequence) && nodes_[n].items.size() == 1)
      n = nodes_[n].items[0];
    return n;
  };
  const Node& root = nodes_[inside(static_cast<uint32_t>(nodes_.size() - 1))];
  if (root.kind != Kind::kSequence || root.items.size() != 3) return std::nullopt;
  const Node& item = nodes_[inside(root.items[1])];
  if (nodes_[inside(root.items[0])].kind != Kind::kBegin || nodes_[inside(root.items[2])].kind != Kind::kEnd ||
      item.kind != Kind::kRepeat)
    return std::nullopt;
  const Node& chars = nodes_[inside(item.items[0])];
  if (chars.kind != Kind::kClass) return std::nullopt;
  return CountedClass{set_of(chars.chars, Reading::kStrict), item.least, item.greatest};
}

}  // namespace redline
