// Regular expressions in the syntax that JSON Schema's patterns and guided decoding use (ECMA-262), restricted to what
// a finite automaton matches (no back references).
#pragma once

#include <optional>

#include "constraints/byte_dfa.h"
#include "constraints/grammar.h"

namespace redline {

/// A parsed expression. Unsupported, by name: back references, flags, possessive quantifiers, ^ within look-ahead and $
/// within look-behind. Groups do not capture, lazy quantifiers match the same texts as greedy ones.
///
/// Dialects differ in \w \d \s and the dot. Both readings are kept: `strict` matches what is in the class for ECMA-262
/// and for Python, `loose` what is for either. Text is generated from the strict one; what must not match is excluded
/// by the loose one.
class RegexSyntax {
 public:
  enum class Reading : uint8_t { kStrict, kLoose };

  static constexpr size_t kMaxBytes = size_t{1} << 16;

  /// invalid_argument or unsupported, with the position in characters; invalid_argument: more than kMaxBytes.
  static Result<RegexSyntax> parse(std::string_view pattern);

  /// Texts that match from beginning to end. invalid_argument: with look-around, more states than ByteDfa allows.
  Result<Grammar::Expr> whole(Grammar& grammar, CompileDeadline& deadline, Reading reading = Reading::kStrict) const;
  /// Texts that contain a match.
  Result<ByteDfa> search(CompileDeadline& deadline, Reading reading = Reading::kStrict) const;

  /// Of an expression ^[class]{least,greatest}$.
  struct CountedClass {
    CharSet chars;
    uint32_t least, greatest;
  };
  std::optional<CountedClass> as_counted_class() const;

 private:
  friend class RegexParser;
  enum class Kind : uint8_t { kEmpty, kClass, kSequence, kChoice, kRepeat, kBegin, kEnd, kAhead, kBehind };
  enum class Builtin : uint8_t { kNone, kDigit, kWord, kSpace, kDot, kCategory };
  struct ClassItem {
    Builtin builtin = Builtin::kNone;
    bool negated = false;
    CharRange range{0, 0};
    uint32_t categories = 0;  ///< bits of the Unicode general categories
  };
  struct Class {
    bool negated = false;
    std::vector<ClassItem> items;
  };
  struct Node {
    Kind kind = Kind::kEmpty;
    uint32_t least = 0, greatest = 0;
    std::vector<uint32_t> items;
    Class chars;
    bool has_anchor = false, can_be_empty = true;
    bool negated = false;  ///< kAhead, kBehind
  };
  struct Anchored;

  uint32_t add(Node node);
  static CharSet set_of(const ClassItem& item, Reading reading);
  static CharSet set_of(const Class& chars, Reading reading);
  Grammar::Expr plain(Grammar& grammar, uint32_t node, Reading reading) const;
  void build(Grammar& grammar, Anchored& out, uint32_t node, Reading reading, uint32_t from, uint32_t to) const;
  /// Texts that match node `root`, after and before any text.
  Grammar::Expr resolve(Grammar& grammar, uint32_t root, Reading reading, bool after_any, bool before_any) const;
  bool contains(uint32_t node, Kind kind) const;
  /// The look-around of all nodes, in order, for ByteDfa::from().
  Result<std::vector<ByteAssertion>> assertions(CompileDeadline& deadline, Reading reading) const;
  uint32_t root() const { return static_cast<uint32_t>(nodes_.size() - 1); }

  std::vector<Node> nodes_;  ///< operands first; the last one is the expression
};

}  // namespace redline
