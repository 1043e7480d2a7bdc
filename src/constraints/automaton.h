// A pushdown automaton over bytes: one nondeterministic automaton per rule of a grammar, with edges that call other
// rules.
#pragma once

#include <array>
#include <span>

#include "constraints/grammar.h"

namespace redline {

/// A compiled grammar. Immutable. Every state is on a path to the end of its rule. No call begins with a call of the
/// same rule, because left recursion is compiled into edges. A call matches at least one byte or token: if a rule may
/// be empty, there is an edge past the call.
class Automaton {
 public:
  static constexpr uint32_t kUnbounded = Grammar::kUnbounded;
  struct EmptyEdge {
    uint32_t to;
    bool ticks;  ///< counts a repetition of a counted rule
  };
  struct ByteEdge {
    uint8_t lo, hi;
    uint32_t to;
  };
  struct CallEdge {
    uint32_t rule, to;
    bool is_tail;  ///< the calling rule ends after the call
  };
  struct TokenEdge {
    int32_t token;
    bool negated;
    uint32_t to;
  };
  struct State {
    /// the edges of a state end where those of the next state begin
    uint32_t first_empty = 0, first_byte = 0, first_call = 0, first_token = 0;
    uint32_t rule = 0;
    bool accepts = false;
    /// Minimum and maximum number of ticks from here to the end of a counted rule.
    uint32_t min_ticks = 0, greatest_ticks = 0;
  };
  struct Rule {
    uint32_t start = 0;
    uint32_t rank = 0;  ///< larger than the ranks of the rules that begin with a call of this rule
    bool is_counted = false;
    uint32_t least = 0, greatest = kUnbounded;
    uint32_t max_distance = 0;  ///< maximum of min_ticks and bounded greatest_ticks over the states of the rule
  };

  /// Compiles a grammar. invalid_argument: it matches no text, exceeds the limits, or has left recursion through a
  /// counted repetition.
  static Result<Automaton> compile(const Grammar& grammar, const ConstraintLimits& limits, CompileDeadline& deadline);

  const std::vector<Rule>& rules() const { return rules_; }
  size_t num_states() const { return states_.size() - 1; }
  const State& state(uint32_t s) const { return states_[s]; }
  std::span<const EmptyEdge> empty_edges(uint32_t s) const {
    return std::span(empty_edges_).subspan(states_[s].first_empty, states_[s + 1].first_empty - states_[s].first_empty);
  }
  std::span<const ByteEdge> byte_edges(uint32_t s) const {
    return std::span(byte_edges_).subspan(states_[s].first_byte, states_[s + 1].first_byte - states_[s].first_byte);
  }
  std::span<const CallEdge> call_edges(uint32_t s) const {
    return std::span(call_edges_).subspan(states_[s].first_call, states_[s + 1].first_call - states_[s].first_call);
  }
  std::span<const TokenEdge> token_edges(uint32_t s) const {
    return std::span(token_edges_).subspan(states_[s].first_token, states_[s + 1].first_token - states_[s].first_token);
  }
  bool is_essential(uint32_t s) const { return !byte_edges(s).empty() || !token_edges(s).empty(); }
  uint32_t root() const { return root_; }
  bool matches_empty() const { return matches_empty_; }
  /// Returns the class of each byte. Bytes of one class have the same edges in every state.
  const std::array<uint8_t, 256>& byte_classes() const { return byte_classes_; }
  uint32_t num_classes() const { return num_classes_; }

 private:
  friend class AutomatonBuilder;
  std::vector<State> states_;  ///< the last entry marks the end of the edges
  std::vector<EmptyEdge> empty_edges_;
  std::vector<ByteEdge> byte_edges_;
  std::vector<CallEdge> call_edges_;
  std::vector<TokenEdge> token_edges_;
  std::vector<Rule> rules_;
  uint32_t root_ = 0;
  bool matches_empty_ = false;
  std::array<uint8_t, 256> byte_classes_ = {};
  uint32_t num_classes_ = 0;
};

}  // namespace redline
