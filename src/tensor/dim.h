// Symbolic sizes: polynomials in a few named symbols with declared upper bounds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline {

/// Sizes that vary from step to step. A model declares an upper bound for each symbol it uses. The values from
/// kFirstExtent on are extents, which models name themselves (extent_symbol).
enum class Symbol : uint8_t {
  kTokens,  ///< language models: rows of a step
  kSequences,
  kLogitRows,      ///< rows of a step whose logits are computed
  kHiddenRows,     ///< rows of a step whose hidden states are outputs
  kEmbeddingRows,  ///< rows of a step whose embeddings are inputs
  kBatch,          ///< image models: images, or images times guidance branches
  kTextTokens,     ///< per batch item
  kImageTokens,    ///< per batch item
  kFirstExtent,
};
/// Number of symbols: those of the enumeration, and the extents of all models in a process.
inline constexpr int kNumSymbols = 32;
/// Returns the symbol of the extent with this name, such as "height": the same one for equal names, so that networks
/// of a pipeline share the sizes that they have in common. Thread-safe. The names come from model code, never from
/// files: more distinct names than there are symbols are a programming error, which ends the process.
Symbol extent_symbol(std::string_view name);
std::string_view symbol_name(Symbol symbol);

/// One value per symbol: bounds at compile time, actual sizes of a step at run time.
struct SymbolValues {
  int64_t value[kNumSymbols] = {};
  int64_t& operator[](Symbol s) { return value[static_cast<int>(s)]; }
  int64_t operator[](Symbol s) const { return value[static_cast<int>(s)]; }
};

/// A sum of terms, each a constant times powers of symbols. Kept sorted and without zero terms, so equal sizes compare
/// equal.
class Dim {
 public:
  Dim(int64_t constant = 0);  // NOLINT(google-explicit-constructor): implicit from a number
  Dim(Symbol symbol);         // NOLINT(google-explicit-constructor)

  bool is_constant() const;
  /// Requires is_constant().
  int64_t constant() const;
  int64_t eval(const SymbolValues& values) const;
  /// Returns "tokens*512 + 3".
  std::string to_string() const;

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  friend bool operator==(const Dim& a, const Dim& b) = default;

 private:
  struct Term {
    int64_t factor = 0;
    uint8_t power[kNumSymbols] = {};
    friend bool operator==(const Term&, const Term&) = default;
  };
  void add_term(const Term& term);
  std::vector<Term> terms_;
};

using Shape = std::vector<Dim>;
/// Returns the product of the sizes; 1 for a scalar.
Dim num_elements(const Shape& shape);
/// Returns "[tokens, 512]".
std::string to_string(const Shape& shape);

}  // namespace redline
