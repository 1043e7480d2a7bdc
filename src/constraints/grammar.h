// Context-free grammars over bytes, which the front ends of output constraints build.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"

namespace redline {

struct CharRange {
  uint32_t lo, hi;  ///< code points, both included
};
using CharSet = std::vector<CharRange>;
inline constexpr uint32_t kMaxChar = 0x10FFFF;
/// Returns the set sorted, without overlaps and without surrogates.
CharSet normalized(const CharSet& set);
CharSet complement(const CharSet& set);
CharSet intersect(const CharSet& a, const CharSet& b);

/// Limits of compiling and using one constraint.
struct ConstraintLimits {
  double compile_ms = 2000;          ///< deadline of compiling
  size_t max_states = 1'000'000;     ///< maximum states of the automaton, which may have four times as many edges
  size_t cache_bytes = 64 << 20;     ///< maximum bytes of parse states and masks that are kept while generating
  size_t max_parse_states = 16'384;  ///< maximum alternatives of an ambiguous grammar at one position
  /// Maximum work of one token: examined parse states and stack frames, and a share of the tokens. About 0.1 s.
  uint64_t max_step_work = 1'000'000;
  /// Maximum work of one text, in addition to a fiftieth of max_step_work for each of its tokens. About 3 s.
  uint64_t max_text_work = 30'000'000;
  size_t max_input_bytes = 16 << 20;  ///< maximum bytes of the grammar's text
};

class CompileDeadline {
 public:
  explicit CompileDeadline(const ConstraintLimits& limits)
      : ms_(limits.compile_ms),
        end_(Clock::now() + std::chrono::microseconds(static_cast<int64_t>(limits.compile_ms * 1e3))) {}
  /// Returns invalid_argument after the deadline. Reads the clock at every 256th call.
  Status check() {
    if ((++calls_ & 255) == 0 && Clock::now() > end_) has_passed_ = true;
    if (!has_passed_) return {};
    return invalid_argument("the constraint takes longer than {} ms to compile", ms_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  double ms_;
  Clock::time_point end_;
  uint32_t calls_ = 0;
  bool has_passed_ = false;
};

/// A grammar under construction. Expressions are numbered in order of construction, so that an operand has a smaller
/// number than the expressions that use it.
class Grammar {
 public:
  using Expr = uint32_t;
  using Rule = uint32_t;
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  enum class Kind : uint8_t {
    kEmpty,
    kNothing,
    kBytes,
    kByteRange,
    kSequence,
    kChoice,
    kRepeat,
    kRule,
    kToken,
    kGraph
  };
  struct GraphEdge {
    uint32_t from, to;
    Expr label;
    bool ticks = false;  ///< counts towards the repetitions of a counted rule
  };
  /// An automaton whose edges are labelled with expressions. State 0 is the start.
  struct Graph {
    uint32_t num_states = 1;
    std::vector<GraphEdge> edges;
    std::vector<uint32_t> accepts;
    uint32_t add_state() { return num_states++; }
    void add(uint32_t from, Expr label, uint32_t to, bool ticks = false) { edges.push_back({from, to, label, ticks}); }
  };
  struct Node {
    Kind kind = Kind::kEmpty;
    bool negated = false;  ///< kToken: matches any other token
    uint32_t first = 0,
             /// kByteRange: first and last byte; kRepeat: minimum and maximum number; kRule, kToken: id in `first`
        last = 0;
    std::vector<Expr> items;
    std::string bytes;
    Graph graph;
  };
  struct RuleInfo {
    std::string name;
    std::optional<Expr> body;
    /// A counted rule is a graph with edges that tick. It matches if the number of ticks is within these bounds.
    bool is_counted = false;
    uint32_t least = 0, greatest = kUnbounded;
  };

  Grammar();
  Expr empty() const { return 0; }
  Expr nothing() const { return 1; }  ///< matches no text
  Expr bytes(std::string_view text);
  Expr byte_range(uint8_t lo, uint8_t hi);
  /// Returns an expression for one character of the set, as UTF-8.
  Expr chars(const CharSet& set);
  Expr sequence(std::vector<Expr> items);
  Expr choice(std::vector<Expr> items);
  /// Returns an expression for one of many texts, as a minimal automaton. If the deadline passes, returns nothing(),
  /// and the next check() of the deadline fails.
  Expr choice_of_texts(std::vector<std::string> texts, CompileDeadline* deadline = nullptr);
  Expr repeat(Expr item, uint32_t least, uint32_t greatest);
  Expr optional(Expr item) { return repeat(item, 0, 1); }
  Expr call(Rule rule);
  /// Returns an expression for a token as a whole, by its id.
  Expr token(int32_t id, bool negated);
  Expr graph(Graph graph);
  /// Returns an expression for the texts of another grammar's root. `in_json_string`: the texts as spelled between the
  /// quotes of a JSON string, with the escapes that JSON requires.
  Expr embed(const Grammar& other, bool in_json_string = false);

  Rule add_rule(std::string name);
  void define(Rule rule, Expr body) { rules_[rule].body = body; }
  void define_counted(Rule rule, Expr graph, uint32_t least, uint32_t greatest);

  const Node& node(Expr expr) const { return nodes_[expr]; }
  size_t num_nodes() const { return nodes_.size(); }
  const std::vector<RuleInfo>& rules() const { return rules_; }
  /// Returns the number of a text; equal texts have equal numbers. Front ends describe rules by lists of such numbers.
  uint32_t number_of(std::string text) {
    return numbers_.try_emplace(std::move(text), static_cast<uint32_t>(numbers_.size())).first->second;
  }
  /// Rules by their description. A front end uses an existing rule again when it needs one with the same description.
  std::map<std::vector<uint32_t>, Rule> described_rules;

  Rule root = 0;
  std::set<std::string> unenforced;  ///< keywords of a JSON Schema that the grammar does not enforce

 private:
  Expr add(Node node);
  std::vector<Node> nodes_;
  std::unordered_map<uint32_t, Expr> byte_ranges_;  ///< expressions by first byte * 256 + last byte
  std::map<std::vector<std::pair<uint32_t, uint32_t>>, Expr> char_sets_;  ///< expressions by ranges of code points
  std::vector<RuleInfo> rules_;
  std::unordered_map<std::string, uint32_t> numbers_;
};

}  // namespace redline
