#include "constraints/json_string.h"

#include <algorithm>
#include <array>

namespace redline {
namespace {

#define REDLINE_YEAR "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
#define REDLINE_LEAP "(0[48]|[2468][048]|[13579][26])"
#define REDLINE_DATE                                                                                          \
  "(" REDLINE_YEAR                                                                                            \
  "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|" \
  "([0-9]{2}" REDLINE_LEAP "|" REDLINE_LEAP "00)-02-29)"
#define REDLINE_TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define REDLINE_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
// The counts keep host labels below 63 characters, and hosts below 253. "--" is allowed only in "xn--", which marks an
// encoded label (RFC 5890).
#define REDLINE_LABEL "(xn--)?[A-Za-z0-9]{1,30}(-[A-Za-z0-9]{1,8}){0,3}"
#define REDLINE_H "[0-9a-fA-F]{1,4}"
#define REDLINE_URI_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define REDLINE_URI_END "(\\?(" REDLINE_URI_CHAR "|[/?])*)?(#(" REDLINE_URI_CHAR "|[/?])*)?"
#define REDLINE_URI                                                                                      \
  "[A-Za-z][A-Za-z0-9+.-]*:(//" REDLINE_LABEL "(\\." REDLINE_LABEL ")*(:[0-9]{1,4})?(/" REDLINE_URI_CHAR \
  "*)*|/?" REDLINE_URI_CHAR "+(/" REDLINE_URI_CHAR "*)*)" REDLINE_URI_END
// The first segment has no colon, because it would then be a scheme.
#define REDLINE_URI_REFERENCE                                                                                    \
  "(" REDLINE_URI "|((([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+|/" REDLINE_URI_CHAR "+)(/" REDLINE_URI_CHAR \
  "*)*|/)?" REDLINE_URI_END ")"
#define REDLINE_EMAIL "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@" REDLINE_LABEL "(\\." REDLINE_LABEL ")+"
#define REDLINE_HOSTNAME REDLINE_LABEL "(\\." REDLINE_LABEL "){0,3}"
#define REDLINE_POINTER "(/([^/~]|~[01])*)*"
// One atom of a regular expression. Groups are not nested.
#define REDLINE_REGEX_ATOM                                                                                  \
  "([A-Za-z0-9_ ,;:@#%&=!<>'\"~`-]|\\\\[dDwWsS.^$|?*+(){}\\[\\]\\\\/]|\\.|\\[\\^?(a-z|A-Z|0-9|[A-Za-z0-9_ " \
  ".,:;@#]|\\\\[dws."                                                                                       \
  "])+\\])([*+?]|\\{[0-9]{1,3}\\})?"

constexpr std::array<std::pair<std::string_view, std::string_view>, 19> kFormats = {{
    {"date", "^" REDLINE_DATE "$"},
    {"time", "^" REDLINE_TIME "$"},
    {"date-time", "^" REDLINE_DATE "T" REDLINE_TIME "$"},
    {"duration",
     "^P(([0-9]+D|[0-9]+M([0-9]+D)?|[0-9]+Y([0-9]+M([0-9]+D)?)?)(T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+"
     "S"
     "))?|T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)|[0-9]+W)$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"email", "^" REDLINE_EMAIL "$"},
    {"idn-email", "^" REDLINE_EMAIL "$"},
    {"hostname", "^" REDLINE_HOSTNAME "$"},
    {"idn-hostname", "^[A-Za-z0-9]{1,20}(\\.[A-Za-z0-9]{1,20}){0,8}$"},
    {"ipv4", "^" REDLINE_BYTE "(\\." REDLINE_BYTE "){3}$"},
    {"ipv6", "^((" REDLINE_H ":){7}" REDLINE_H "|(" REDLINE_H ":){1,7}:|(" REDLINE_H ":){1,6}:" REDLINE_H "|(" REDLINE_H
             ":){1,5}(:" REDLINE_H "){1,2}|(" REDLINE_H ":){1,4}(:" REDLINE_H "){1,3}|(" REDLINE_H ":){1,3}(:" REDLINE_H
             "){1,4}|(" REDLINE_H ":){1,2}(:" REDLINE_H "){1,5}|" REDLINE_H ":(:" REDLINE_H "){1,6}|:((:" REDLINE_H
             "){1,7}|:))$"},
    {"uri", "^" REDLINE_URI "$"},
    {"iri", "^" REDLINE_URI "$"},
    {"uri-reference", "^" REDLINE_URI_REFERENCE "$"},
    {"iri-reference", "^" REDLINE_URI_REFERENCE "$"},
    {"uri-template",
     "^([A-Za-z0-9._~!$&()*+,;=:@/?#-]|%[0-9A-Fa-f]{2}|\\{[+#./;?&]?[A-Za-z0-9_]+(,[A-Za-z0-9_]+)*\\})*$"},
    {"json-pointer", "^" REDLINE_POINTER "$"},
    {"relative-json-pointer", "^(0|[1-9][0-9]{0,9})(#|" REDLINE_POINTER ")$"},
    {"regex", "^\\^?(" REDLINE_REGEX_ATOM "|\\((\\?:)?(" REDLINE_REGEX_ATOM ")+\\)[*+?]?)+\\$?$"},
}};

bool is_lead(uint32_t byte) { return (byte & 0xC0U) != 0x80U; }

std::string escaped(uint8_t byte) {
  switch (byte) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return byte < 0x20 ? fmt::format("\\u{:04x}", byte) : std::string(1, static_cast<char>(byte));
  }
}

// The lengths of the texts that an automaton accepts. `ends` tells whether a number of characters can lead from a state
// to the end; `has_gaps` is true if these numbers are not one interval for some state.
struct Lengths {
  std::vector<std::vector<bool>> ends;  // [characters][state]
  bool has_gaps = false;
};
Lengths lengths_of(const ByteDfa& dfa, const std::vector<bool>& live, size_t max_chars) {
  const uint32_t n = dfa.num_states();
  std::vector<std::vector<uint32_t>> lead_sources(n), other_sources(n);
  for (uint32_t s = 0; s < n; ++s) {
    if (!live[s]) continue;
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t to = dfa.step(s, static_cast<uint8_t>(b));
      if (!live[to]) continue;
      auto& sources = (is_lead(b) ? lead_sources : other_sources)[to];
      if (sources.empty() || sources.back() != s) sources.push_back(s);
    }
  }
  Lengths result;
  std::vector<bool> now(n);
  for (uint32_t s = 0; s < n; ++s) now[s] = dfa.accepts(s);
  std::vector<uint8_t> phase(n);  // phase of each state: 0 before its interval of lengths, 1 within it, 2 after it
  for (size_t k = 0; k <= max_chars; ++k) {
    std::vector<uint32_t> work;
    for (uint32_t s = 0; s < n; ++s)
      if (now[s]) work.push_back(s);
    while (!work.empty()) {
      const uint32_t s = work.back();
      work.pop_back();
      for (const uint32_t from : other_sources[s])
        if (!now[from]) now[from] = true, work.push_back(from);
    }
    for (uint32_t s = 0; s < n; ++s) {
      if (now[s] && phase[s] == 2) result.has_gaps = true;
      if (now[s]) phase[s] = 1;
      else if (phase[s] == 1) phase[s] = 2;
    }
    result.ends.push_back(now);
    std::vector<bool> next(n);
    for (uint32_t s = 0; s < n; ++s)
      if (now[s])
        for (const uint32_t from : lead_sources[s]) next[from] = true;
    now.swap(next);
  }
  return result;
}

}  // namespace

std::string_view format_pattern(std::string_view format) {
  for (const auto& [name, pattern] : kFormats)
    if (name == format) return pattern;
  return {};
}

std::string known_formats() {
  std::string text;
  for (const auto& [name, pattern] : kFormats) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text;
}

std::string spell_json_string(std::string_view value) {
  std::string text = "\"";
  for (const char c : value) text += escaped(static_cast<uint8_t>(c));
  return text + "\"";
}

namespace {

// Returns an expression for a string whose characters are counted. The quotes are part of the rule, so that it does not
// end between two characters.
Grammar::Expr counted_in_quotes(Grammar& g, const Grammar::Graph& body, uint32_t least, uint32_t greatest) {
  Grammar::Graph graph;
  graph.num_states = body.num_states + 2;
  const uint32_t shift = 1, end = graph.num_states - 1;
  graph.add(0, g.bytes("\""), shift);
  for (Grammar::GraphEdge edge : body.edges) graph.add(edge.from + shift, edge.label, edge.to + shift, edge.ticks);
  for (const uint32_t state : body.accepts) graph.add(state + shift, g.bytes("\""), end);
  graph.accepts = {end};
  const Grammar::Rule rule = g.add_rule("a string of bounded length");
  g.define_counted(rule, g.graph(std::move(graph)), least, greatest);
  return g.call(rule);
}

}  // namespace

Grammar::Expr any_json_string(Grammar& g, uint32_t least, uint32_t greatest) {
  CharSet raw = complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  const auto hex = [&] { return g.choice({g.byte_range('0', '9'), g.byte_range('a', 'f'), g.byte_range('A', 'F')}); };
  const auto letter = [&](std::string_view both) {
    return g.choice({g.bytes(both.substr(0, 1)), g.bytes(both.substr(1))});
  };
  // Surrogates are escaped in pairs, and a pair is one character.
  const Grammar::Expr plain =
      g.choice({g.sequence({g.choice({g.byte_range('0', '9'), g.byte_range('a', 'c'), g.byte_range('A', 'C'),
                                      letter("eE"), letter("fF")}),
                            hex(), hex(), hex()}),
                g.sequence({letter("dD"), g.byte_range('0', '7'), hex(), hex()}),
                g.sequence({letter("dD"), g.choice({g.byte_range('8', '9'), letter("aA"), letter("bB")}), hex(), hex(),
                            g.bytes("\\u"), letter("dD"), g.choice({g.byte_range('c', 'f'), g.byte_range('C', 'F')}),
                            hex(), hex()})});
  std::vector<Grammar::Expr> escapes = {g.sequence({g.bytes("u"), plain})};
  for (const char c : std::string_view("\"\\/bfnrt")) escapes.push_back(g.bytes(std::string_view(&c, 1)));
  const Grammar::Expr one = g.choice({g.chars(raw), g.sequence({g.bytes("\\"), g.choice(std::move(escapes))})});
  if (least == 0 && greatest == Grammar::kUnbounded)
    return g.sequence({g.bytes("\""), g.repeat(one, least, greatest), g.bytes("\"")});
  Grammar::Graph graph;
  graph.add(0, one, 0, true);
  graph.accepts = {0};
  return counted_in_quotes(g, graph, least, greatest);
}

Result<Grammar::Expr> json_string_of(Grammar& g, const ByteDfa& dfa, uint32_t least, uint32_t greatest) {
  if (least > greatest) return g.nothing();
  const std::vector<bool> live = dfa.live();
  if (!live[0]) return g.nothing();
  const bool has_bounds = least > 0 || greatest != Grammar::kUnbounded;
  // Adds the edges of `state`, which stands for state `from` of the automaton. They lead to the states that `target`
  // names.
  const auto add_edges = [&](Grammar::Graph& graph, uint32_t from, uint32_t state, const auto& target, bool ticks) {
    for (uint32_t b = 0; b < 256;) {
      const uint32_t to = dfa.step(from, static_cast<uint8_t>(b));
      const auto escape = escaped(static_cast<uint8_t>(b));
      uint32_t end = b + 1;
      if (escape.size() == 1)
        while (end < 256 && end != 0x80 && end != 0xC0 && dfa.step(from, static_cast<uint8_t>(end)) == to &&
               escaped(static_cast<uint8_t>(end)).size() == 1)
          ++end;
      if (live[to]) {
        const uint32_t next = target(to, is_lead(b));
        if (next != UINT32_MAX) {
          const Grammar::Expr label = escape.size() == 1
                                          ? g.byte_range(static_cast<uint8_t>(b), static_cast<uint8_t>(end - 1))
                                          : g.bytes(escape);
          graph.add(state, label, next, ticks && is_lead(b));
        }
      }
      b = end;
    }
  };
  Grammar::Graph graph;
  const auto in_quotes = [&](Grammar::Expr body) { return g.sequence({g.bytes("\""), body, g.bytes("\"")}); };
  const auto build_plain = [&](bool ticks) {
    std::vector<uint32_t> number(dfa.num_states(), 0);
    for (uint32_t s = 1; s < dfa.num_states(); ++s)
      if (live[s]) number[s] = graph.add_state();
    for (uint32_t s = 0; s < dfa.num_states(); ++s) {
      if (!live[s]) continue;
      add_edges(
          graph, s, number[s], [&](uint32_t to, bool) { return number[to]; }, ticks);
      if (dfa.accepts(s)) graph.accepts.push_back(number[s]);
    }
  };
  if (!has_bounds) {
    build_plain(false);
    return in_quotes(g.graph(std::move(graph)));
  }
  constexpr size_t kMaxChars = 4096, kMaxCells = 8'000'000;
  const size_t probe = 2 * size_t{dfa.num_states()} + 64;
  if (probe <= kMaxChars && probe * dfa.num_states() <= kMaxCells && !lengths_of(dfa, live, probe).has_gaps) {
    build_plain(true);
    return counted_in_quotes(g, graph, least, greatest);
  }
  constexpr size_t kMaxStates = 40'000;
  const size_t chars = greatest == Grammar::kUnbounded ? least : greatest;
  if (chars > kMaxChars || chars * dfa.num_states() > kMaxStates)
    return unsupported("a length up to {} with a pattern or format that skips lengths is", chars);
  // A state of the graph is (number of characters, state of the automaton). Without an upper bound, all numbers from
  // `least` on are one.
  const bool is_open = greatest == Grammar::kUnbounded;
  const Lengths lengths = lengths_of(dfa, live, chars + dfa.num_states());
  const auto can_end = [&](uint32_t s, size_t k) {
    const size_t from = k < least ? least - k : 0;
    const size_t to = is_open ? lengths.ends.size() - 1 : chars - k;
    for (size_t n = from; n <= to && n < lengths.ends.size(); ++n)
      if (lengths.ends[n][s]) return true;
    return false;
  };
  std::vector<uint32_t> number((chars + 1) * dfa.num_states(), UINT32_MAX);
  std::vector<std::pair<uint32_t, size_t>> work = {{0, 0}};
  if (!can_end(0, 0)) return g.nothing();
  number[0] = 0;
  while (!work.empty()) {
    const auto [s, k] = work.back();
    work.pop_back();
    const uint32_t state = number[k * dfa.num_states() + s];
    if (dfa.accepts(s) && k >= least) graph.accepts.push_back(state);
    add_edges(
        graph, s, state,
        [&, k = k](uint32_t to, bool lead) {
          size_t next = k + lead;
          if (next > chars && is_open) next = chars;
          if (next > chars || !can_end(to, next)) return UINT32_MAX;
          uint32_t& n = number[next * dfa.num_states() + to];
          if (n == UINT32_MAX) {
            n = graph.add_state();
            work.emplace_back(to, next);
          }
          return n;
        },
        false);
  }
  return in_quotes(g.graph(std::move(graph)));
}

}  // namespace redline
