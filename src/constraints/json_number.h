// Ranges of JSON numbers as expressions.
#pragma once

#include <optional>
#include <string>

#include "constraints/byte_dfa.h"

namespace redline {

/// An exact decimal number.
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;  ///< digits without leading, or trailing, zeros

  /// Of digits with an optional fraction and exponent; nullopt: it has more than 40 digits.
  static std::optional<Decimal> from(std::string_view text);
  bool is_zero() const { return whole == "0" && fraction.empty(); }
  bool is_integer() const { return fraction.empty(); }
  int compare(const Decimal& other) const;
  Decimal operator-() const;
  Decimal plus_one() const;   ///< of a number that is not negative
  Decimal minus_one() const;  ///< of a number of 1 or more
};

struct NumberRange {
  bool is_integer = false;
  bool has_exponent = true;  ///< numbers without bounds may have one
  std::optional<Decimal> least, greatest;
  bool excludes_least = false, excludes_greatest = false;

  void raise_least(const Decimal& value, bool excludes);
  void lower_greatest(const Decimal& value, bool excludes);
  bool has_bounds() const { return least || greatest; }
};

/// The numbers of a range in JSON's notation. With bounds they have no exponent, and so few digits that a double keeps
/// them apart.
Grammar::Expr number_expression(Grammar& grammar, const NumberRange& range);
/// Numbers without an exponent that are multiples of divisor / 10^scale; without a scale they may have a fraction of
/// zeros if `with_fraction`.
Grammar::Expr multiples_expression(Grammar& grammar, uint32_t divisor, uint32_t scale, bool with_fraction);
/// All spellings of a number without an exponent.
Grammar::Expr spellings_of(Grammar& grammar, const Decimal& number);

}  // namespace redline
