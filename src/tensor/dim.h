// Symbolic sizes: polynomials in a few named symbols with declared upper bounds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline {

/// The sizes that really vary from step to step. A model declares an upper bound for each that it uses.
enum class Symbol : uint8_t {
  kTokens,  ///< of language models: rows of a step
  kSequences,
  kLogitRows,
  kBatch,        ///< of everything that draws: pictures, or pictures times branches of guidance
  kTextTokens,   ///< of one item of the batch
  kImageTokens,  ///< of one item of the batch
  // Pixels of a latent, and of what is left after halving (rounded up) once, twice, three times.
  kHeight,
  kWidth,
  kHeight2,
  kWidth2,
  kHeight4,
  kWidth4,
  kHeight8,
  kWidth8,
};
inline constexpr int kNumSymbols = 14;
std::string_view symbol_name(Symbol symbol);

/// One value per symbol: the bounds at compile time, the sizes of one step at run time.
struct SymbolValues {
  int64_t value[kNumSymbols] = {};
  int64_t& operator[](Symbol s) { return value[static_cast<int>(s)]; }
  int64_t operator[](Symbol s) const { return value[static_cast<int>(s)]; }
};

/// The eight sizes of a latent of so many pixels.
void set_latent_size(SymbolValues& values, int64_t height, int64_t width);

/// A sum of terms, each a constant times powers of symbols. Kept sorted, no zero terms: equal sizes compare equal.
class Dim {
 public:
  Dim(int64_t constant = 0);  // NOLINT(google-explicit-constructor): a number is a size
  Dim(Symbol symbol);         // NOLINT(google-explicit-constructor)

  bool is_constant() const;
  /// Only when is_constant().
  int64_t constant() const;
  int64_t eval(const SymbolValues& values) const;
  /// "tokens*512 + 3"
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
/// Product of the sizes; 1 for a scalar.
Dim num_elements(const Shape& shape);
/// "[tokens, 512]"
std::string to_string(const Shape& shape);

}  // namespace redline
