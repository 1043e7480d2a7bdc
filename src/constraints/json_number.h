// Makes expressions for ranges of JSON numbers.
#pragma once

#include <optional>
#include <string>

#include "constraints/byte_dfa.h"

namespace redline {

/// An exact decimal number.
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;  ///< digits: `whole` without leading zeros, `fraction` without trailing zeros

  /// Parses digits with an optional fraction and exponent; nullopt: the number has more than 40 digits.
  static std::optional<Decimal> from(std::string_view text);
  bool is_zero() const { return whole == "0" && fraction.empty(); }
  bool is_integer() const { return fraction.empty(); }
  int compare(const Decimal& other) const;
  Decimal operator-() const;
  Decimal plus_one() const;   ///< requires a number that is not negative
  Decimal minus_one() const;  ///< requires a number of 1 or more
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

/// Returns an expression for the numbers of a range in JSON's notation. With bounds, the numbers have no exponent and
/// few enough digits that different numbers are different doubles.
Grammar::Expr number_expression(Grammar& grammar, const NumberRange& range);
/// Returns an expression for multiples of divisor / 10^scale, without an exponent. If scale is 0, they may have a
/// fraction of zeros if `with_fraction`.
Grammar::Expr multiples_expression(Grammar& grammar, uint32_t divisor, uint32_t scale, bool with_fraction);
/// Returns an expression for all spellings of a number without an exponent.
Grammar::Expr spellings_of(Grammar& grammar, const Decimal& number);

}  // namespace redline
