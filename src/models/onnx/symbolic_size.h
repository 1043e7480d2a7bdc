// Sizes of a network that was read from a file: polynomials in the sizes that the file names, and in rounded quotients
// and unknown sizes of its operators.
//
// The symbols of tensor/dim.h are those of Redline's own models. A file names its sizes itself ("batch", "frames"), and
// convolutions and pools divide them; the importer gives each symbol of a network that is left a symbol of the graph.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace redline {

/// A constant plus a sum of terms, each an integer times symbols of a SymbolicSizes. Equal sizes compare equal.
class SymbolicSize {
 public:
  SymbolicSize(int64_t constant = 0) : constant_(constant) {}  // NOLINT(google-explicit-constructor): from a number

  bool is_constant() const { return terms_.empty(); }
  /// The constant part; the whole size if is_constant().
  int64_t constant() const { return constant_; }
  /// True if the size is a single symbol.
  bool is_symbol() const {
    return constant_ == 0 && terms_.size() == 1 && terms_[0].factor == 1 && terms_[0].symbols.size() == 1;
  }
  /// True if no term and no constant is negative: the size is then 0 or larger, since symbols are.
  bool is_nonnegative() const;
  size_t num_terms() const { return terms_.size(); }
  friend bool operator==(const SymbolicSize&, const SymbolicSize&) = default;

 private:
  friend class SymbolicSizes;
  struct Term {
    int64_t factor = 0;
    std::vector<uint32_t> symbols;  ///< sorted; a power repeats its symbol
    friend bool operator==(const Term&, const Term&) = default;
  };
  int64_t constant_ = 0;
  std::vector<Term> terms_;  ///< sorted by symbols, no factor is 0
};

using SymbolicShape = std::vector<SymbolicSize>;

/// The symbols of a network, and arithmetic on its sizes. A result that overflows, or has more than kMaxTerms terms, is
/// an unknown size.
class SymbolicSizes {
 public:
  static constexpr size_t kMaxTerms = 8, kMaxSymbols = 8;

  /// Returns the symbol of a name in the file.
  SymbolicSize named(std::string_view name);
  /// Returns a new symbol, spelled "?N".
  SymbolicSize unknown();
  bool is_unknown(const SymbolicSize& size) const;

  SymbolicSize add(const SymbolicSize& a, const SymbolicSize& b);
  SymbolicSize subtract(const SymbolicSize& a, const SymbolicSize& b) { return add(a, multiply(b, -1)); }
  SymbolicSize multiply(const SymbolicSize& a, const SymbolicSize& b);
  /// Returns the largest integer that is at most a / divisor. Requires divisor > 0.
  SymbolicSize floor_divide(const SymbolicSize& a, int64_t divisor);
  SymbolicSize ceil_divide(const SymbolicSize& a, int64_t divisor) {
    return floor_divide(add(a, divisor - 1), divisor);
  }
  /// Returns a / b if the division is known to leave no remainder whatever the symbols are; b has one term.
  std::optional<SymbolicSize> divide_exactly(const SymbolicSize& a, const SymbolicSize& b);
  /// Return the smaller and the larger of two sizes: a symbol spelled "min(a, b)" where that depends on symbols.
  SymbolicSize smaller(const SymbolicSize& a, const SymbolicSize& b);
  SymbolicSize larger(const SymbolicSize& a, const SymbolicSize& b);
  SymbolicSize product(const SymbolicShape& shape, size_t begin, size_t end);
  SymbolicSize product(const SymbolicShape& shape) { return product(shape, 0, shape.size()); }

  /// Returns "batch*512 + 3".
  std::string text(const SymbolicSize& size) const;
  /// Returns "[batch, 3, floor((height + 1)/2)]".
  std::string text(const SymbolicShape& shape) const;

 private:
  SymbolicSize symbol(std::string name);
  SymbolicSize expression(std::string text);
  bool add_term(SymbolicSize& to, const SymbolicSize::Term& term) const;

  std::vector<std::string> names_;
  std::map<std::string, uint32_t, std::less<>> by_name_;
  int num_unknown_ = 0;
};

}  // namespace redline
