// The embedding of a grammar in another one.
#include "base/error.h"
#include "constraints/grammar.h"

namespace redline {
namespace {

/// Returns the escape of a byte that cannot stand as it is within a JSON string; "" if it can.
std::string json_escape(uint8_t byte) {
  switch (byte) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\b': return "\\b";
    case '\f': return "\\f";
    default: return byte < 0x20 ? fmt::format("\\u{:04x}", byte) : std::string();
  }
}

}  // namespace

Grammar::Expr Grammar::embed(const Grammar& other, bool in_json_string) {
  unenforced.insert(other.unenforced.begin(), other.unenforced.end());
  std::vector<Rule> rules;
  for (const RuleInfo& rule : other.rules_) rules.push_back(add_rule(rule.name));
  // Operands have smaller numbers than the nodes that use them, so one pass in order copies all.
  std::vector<Expr> copies(other.nodes_.size());
  copies[other.empty()] = empty();
  copies[other.nothing()] = nothing();
  for (Expr e = nothing() + 1; e < other.nodes_.size(); ++e) {
    Node node = other.nodes_[e];
    for (Expr& item : node.items) item = copies[item];
    for (GraphEdge& edge : node.graph.edges) edge.label = copies[edge.label];
    if (node.kind == Kind::kRule) node.first = rules[node.first];
    if (in_json_string && node.kind == Kind::kBytes) {
      std::string spelled;
      for (const char c : node.bytes) {
        const std::string escape = json_escape(static_cast<uint8_t>(c));
        if (escape.empty()) spelled.push_back(c);
        else spelled += escape;
      }
      node.bytes = std::move(spelled);
    }
    if (in_json_string && node.kind == Kind::kByteRange) {
      std::vector<Expr> parts;
      uint32_t begin = node.first;
      for (uint32_t b = node.first; b <= node.last; ++b) {
        const std::string escape = json_escape(static_cast<uint8_t>(b));
        if (escape.empty()) continue;
        if (b > begin) parts.push_back(byte_range(static_cast<uint8_t>(begin), static_cast<uint8_t>(b - 1)));
        parts.push_back(bytes(escape));
        begin = b + 1;
      }
      if (begin <= node.last) parts.push_back(byte_range(static_cast<uint8_t>(begin), static_cast<uint8_t>(node.last)));
      copies[e] = choice(std::move(parts));
      continue;
    }
    copies[e] = add(std::move(node));
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    const RuleInfo& rule = other.rules_[i];
    RuleInfo& copy = rules_[rules[i]];
    if (rule.body) copy.body = copies[*rule.body];
    copy.is_counted = rule.is_counted;
    copy.least = rule.least;
    copy.greatest = rule.greatest;
  }
  return call(rules[other.root]);
}

}  // namespace redline
