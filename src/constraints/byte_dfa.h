// Deterministic automata over bytes, for constraints that need a complement or an intersection: patterns, formats and
// member names of JSON Schema.
#pragma once

#include <array>
#include <span>

#include "constraints/grammar.h"

namespace redline {

struct ByteAssertion;

/// A complete deterministic automaton over bytes. It is minimized if that is cheap.
class ByteDfa {
 public:
  static constexpr size_t kMaxStates = 20'000;

  /// Makes the automaton of an expression, which must not contain rules or tokens. invalid_argument: it has more than
  /// kMaxStates states.
  static Result<ByteDfa> from(const Grammar& grammar, Grammar::Expr expression, CompileDeadline& deadline);
  /// from() for an expression whose tokens stand for assertions, by index.
  static Result<ByteDfa> from(const Grammar& grammar, Grammar::Expr expression,
                              std::span<const ByteAssertion> assertions, CompileDeadline& deadline);
  static Result<ByteDfa> intersect(const ByteDfa& a, const ByteDfa& b, CompileDeadline& deadline);
  /// Returns the complement among all byte strings, UTF-8 or not.
  ByteDfa complement() const;

  /// Returns the accepted texts as an expression.
  Grammar::Expr expression(Grammar& grammar) const;

  bool matches(std::string_view text) const;
  bool is_empty() const;
  uint32_t num_states() const { return static_cast<uint32_t>(accepts_.size()); }
  uint32_t start() const { return 0; }
  uint32_t step(uint32_t state, uint8_t byte) const { return table_[state * num_classes_ + classes_[byte]]; }
  bool accepts(uint32_t state) const { return accepts_[state]; }
  /// Returns, for each state, whether some text from it on is accepted.
  std::vector<bool> live() const;

 private:
  template <class Key, class Step, class Accepts>
  static Result<ByteDfa> explore(const std::array<uint8_t, 256>& classes, uint32_t num_classes, Key start,
                                 const Step& step, const Accepts& accepts, CompileDeadline& deadline);
  void minimize();

  std::array<uint8_t, 256> classes_ = {};
  uint32_t num_classes_ = 1;
  std::vector<uint32_t> table_;
  std::vector<bool> accepts_;
};

/// A condition between two bytes of a text: the rest of the text is in `language`, or, if is_behind, the text so far
/// is.
struct ByteAssertion {
  ByteDfa language;
  bool is_behind = false;
};

}  // namespace redline
