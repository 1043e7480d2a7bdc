// Deterministic automata over bytes, for constraints that need a complement or an intersection: patterns, formats and
// names of JSON Schema.
#pragma once

#include <array>
#include <span>

#include "constraints/grammar.h"

namespace redline {

struct ByteAssertion;

/// Complete; minimal where that is cheap.
class ByteDfa {
 public:
  static constexpr size_t kMaxStates = 20'000;

  /// invalid_argument: more than kMaxStates. The expression must not contain rules or tokens.
  static Result<ByteDfa> from(const Grammar& grammar, Grammar::Expr expression, CompileDeadline& deadline);
  /// Tokens of the expression stand for assertions, by number.
  static Result<ByteDfa> from(const Grammar& grammar, Grammar::Expr expression,
                              std::span<const ByteAssertion> assertions, CompileDeadline& deadline);
  static Result<ByteDfa> intersect(const ByteDfa& a, const ByteDfa& b, CompileDeadline& deadline);
  /// The complement among all byte strings, UTF-8 or not.
  ByteDfa complement() const;

  /// The texts that are accepted, as an expression.
  Grammar::Expr expression(Grammar& grammar) const;

  bool matches(std::string_view text) const;
  bool is_empty() const;
  uint32_t num_states() const { return static_cast<uint32_t>(accepts_.size()); }
  uint32_t start() const { return 0; }
  uint32_t step(uint32_t state, uint8_t byte) const { return table_[state * num_classes_ + classes_[byte]]; }
  bool accepts(uint32_t state) const { return accepts_[state]; }
  /// Whether some text from here is accepted.
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

/// A condition between two bytes of a text: the rest of the text is in a language, or the text so far is.
struct ByteAssertion {
  ByteDfa language;
  bool is_behind = false;
};

}  // namespace redline
