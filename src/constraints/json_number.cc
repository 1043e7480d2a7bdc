#include "constraints/json_number.h"

#include <algorithm>
#include <cstdlib>

namespace redline {
namespace {

constexpr size_t kMaxDigits = 40, kMaxWhole = 15, kMaxWholeWithFraction = 9, kMaxFraction = 6;

int compare_whole(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  const int order = a.compare(b);
  return order < 0 ? -1 : order > 0;
}

}  // namespace

std::optional<Decimal> Decimal::from(std::string_view text) {
  Decimal d;
  if (text.starts_with('-')) d.negative = true, text.remove_prefix(1);
  int64_t exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != std::string::npos) {
    exponent = std::strtoll(std::string(text.substr(e + 1)).c_str(), nullptr, 10);
    text = text.substr(0, e);
  }
  std::string digits;
  const size_t point = std::min(text.find('.'), text.size());
  for (const char c : text)
    if (c != '.') digits.push_back(c);
  int64_t whole_digits = static_cast<int64_t>(point) + exponent;
  constexpr auto kLimit = static_cast<int64_t>(kMaxDigits);
  if (whole_digits > kLimit || whole_digits < -kLimit || digits.size() > kMaxDigits) return std::nullopt;
  for (; whole_digits <= 0; ++whole_digits) digits.insert(digits.begin(), '0');
  while (static_cast<int64_t>(digits.size()) < whole_digits) digits.push_back('0');
  d.whole = digits.substr(0, static_cast<size_t>(whole_digits));
  d.fraction = digits.substr(static_cast<size_t>(whole_digits));
  d.whole.erase(0, std::min(d.whole.find_first_not_of('0'), d.whole.size() - 1));
  while (d.fraction.ends_with('0')) d.fraction.pop_back();
  if (d.is_zero()) d.negative = false;
  return d;
}

int Decimal::compare(const Decimal& other) const {
  if (negative != other.negative) return negative ? -1 : 1;
  int order = compare_whole(whole, other.whole);
  if (order == 0) {
    const int fractions = fraction.compare(other.fraction);
    order = fractions < 0 ? -1 : fractions > 0;
  }
  return negative ? -order : order;
}

Decimal Decimal::operator-() const {
  Decimal d = *this;
  d.negative = !negative && !is_zero();
  return d;
}

Decimal Decimal::plus_one() const {
  Decimal d = *this;
  for (size_t i = d.whole.size();; --i) {
    if (i == 0) {
      d.whole.insert(d.whole.begin(), '1');
      break;
    }
    if (d.whole[i - 1] != '9') {
      ++d.whole[i - 1];
      break;
    }
    d.whole[i - 1] = '0';
  }
  return d;
}

Decimal Decimal::minus_one() const {
  Decimal d = *this;
  for (size_t i = d.whole.size(); i > 0; --i) {
    if (d.whole[i - 1] != '0') {
      --d.whole[i - 1];
      break;
    }
    d.whole[i - 1] = '9';
  }
  d.whole.erase(0, std::min(d.whole.find_first_not_of('0'), d.whole.size() - 1));
  return d;
}

void NumberRange::raise_least(const Decimal& value, bool excludes) {
  const int order = least ? value.compare(*least) : 1;
  if (order > 0) excludes_least = excludes;
  if (order == 0) excludes_least = excludes_least || excludes;
  if (order >= 0) least = value;
}

void NumberRange::lower_greatest(const Decimal& value, bool excludes) {
  const int order = greatest ? value.compare(*greatest) : -1;
  if (order < 0) excludes_greatest = excludes;
  if (order == 0) excludes_greatest = excludes_greatest || excludes;
  if (order <= 0) greatest = value;
}

namespace {

/// Builds expressions for ranges of numbers that are not negative.
class NumberBuilder {
 public:
  NumberBuilder(Grammar& grammar, size_t max_fraction) : g_(grammar), max_fraction_(max_fraction) {}

  // Returns an expression for the integers lo to hi without leading zeros.
  Grammar::Expr integers(const std::string& lo, const std::string& hi) {
    if (compare_whole(lo, hi) > 0) return g_.nothing();
    if (lo.size() == hi.size()) return same_length(lo, hi);
    std::vector<Grammar::Expr> items = {same_length(lo, std::string(lo.size(), '9'))};
    if (hi.size() - lo.size() > 1) items.push_back(g_.sequence({digit('1', '9'), digits(lo.size(), hi.size() - 2)}));
    items.push_back(same_length("1" + std::string(hi.size() - 1, '0'), hi));
    return g_.choice(std::move(items));
  }

  Grammar::Expr decimals(const Decimal& lo, bool excludes_lo, const Decimal& hi, bool excludes_hi) {
    const int order = lo.compare(hi);
    if (order > 0 || (order == 0 && (excludes_lo || excludes_hi))) return g_.nothing();
    if (lo.whole == hi.whole)
      return g_.sequence({g_.bytes(lo.whole), between(lo.fraction, excludes_lo, hi.fraction, excludes_hi)});
    std::vector<Grammar::Expr> items;
    items.push_back(g_.sequence({g_.bytes(lo.whole), at_least(lo.fraction, excludes_lo)}));
    const Decimal first = lo.plus_one();
    if (compare_whole(first.whole, hi.whole) < 0) {
      const std::string last = hi.minus_one().whole;
      items.push_back(integers(first.whole, last));
      const std::string most(kMaxWholeWithFraction, '9');
      items.push_back(g_.sequence({integers(first.whole, compare_whole(last, most) < 0 ? last : most), g_.bytes("."),
                                   digits(1, max_fraction_)}));
    }
    items.push_back(g_.sequence({g_.bytes(hi.whole), at_most(hi.fraction, excludes_hi)}));
    return g_.choice(std::move(items));
  }

 private:
  Grammar::Expr digit(char lo, char hi) {
    return lo > hi ? g_.nothing() : g_.byte_range(static_cast<uint8_t>(lo), static_cast<uint8_t>(hi));
  }
  Grammar::Expr digits(size_t least, size_t greatest) {
    return g_.repeat(digit('0', '9'), static_cast<uint32_t>(least), static_cast<uint32_t>(greatest));
  }
  static char next(char c) { return static_cast<char>(c + 1); }
  static char previous(char c) { return static_cast<char>(c - 1); }

  Grammar::Expr same_length(std::string_view lo, std::string_view hi) {
    if (lo.empty()) return g_.empty();
    if (lo[0] == hi[0]) return g_.sequence({digit(lo[0], lo[0]), same_length(lo.substr(1), hi.substr(1))});
    const size_t rest = lo.size() - 1;
    const std::string zeros(rest, '0'), nines(rest, '9');
    return g_.choice({g_.sequence({digit(lo[0], lo[0]), tail_at_least(lo.substr(1))}),
                      g_.sequence({digit(next(lo[0]), previous(hi[0])), digits(rest, rest)}),
                      g_.sequence({digit(hi[0], hi[0]), tail_at_most(hi.substr(1))})});
  }
  Grammar::Expr tail_at_least(std::string_view lo) {
    if (lo.empty()) return g_.empty();
    return g_.choice({g_.sequence({digit(lo[0], lo[0]), tail_at_least(lo.substr(1))}),
                      g_.sequence({digit(next(lo[0]), '9'), digits(lo.size() - 1, lo.size() - 1)})});
  }
  Grammar::Expr tail_at_most(std::string_view hi) {
    if (hi.empty()) return g_.empty();
    return g_.choice({g_.sequence({digit(hi[0], hi[0]), tail_at_most(hi.substr(1))}),
                      g_.sequence({digit('0', previous(hi[0])), digits(hi.size() - 1, hi.size() - 1)})});
  }

  size_t room(size_t used) const { return max_fraction_ > used ? max_fraction_ - used : 0; }
  // Returns an expression for the digits after the first `used` digits of a fraction, at least one of which is not
  // zero.
  Grammar::Expr more_than_zeros(size_t used) {
    std::vector<Grammar::Expr> items;
    std::string zeros;
    for (size_t i = used; i < max_fraction_; ++i, zeros.push_back('0'))
      items.push_back(g_.sequence({g_.bytes(zeros), digit('1', '9'), digits(0, room(i + 1))}));
    return g_.choice(std::move(items));
  }
  // Returns an expression for the digits, from position i on, of fractions of at least 0.F.
  Grammar::Expr fraction_at_least(std::string_view f, size_t i, bool excludes) {
    if (i == f.size()) return excludes ? more_than_zeros(i) : digits(0, room(i));
    return g_.choice({g_.sequence({digit(next(f[i]), '9'), digits(0, room(i + 1))}),
                      g_.sequence({digit(f[i], f[i]), fraction_at_least(f, i + 1, excludes)})});
  }
  Grammar::Expr at_least(const std::string& f, bool excludes) {
    if (!f.empty()) return g_.sequence({g_.bytes("."), fraction_at_least(f, 0, excludes)});
    if (excludes) return g_.sequence({g_.bytes("."), more_than_zeros(0)});
    return g_.optional(g_.sequence({g_.bytes("."), digits(1, max_fraction_)}));
  }
  // Returns an expression for the digits, from position i on, of fractions of at most 0.F. A fraction that ends before
  // F does is less.
  Grammar::Expr fraction_at_most(std::string_view f, size_t i, bool excludes) {
    if (i == f.size()) return excludes ? g_.nothing() : g_.repeat(g_.bytes("0"), 0, static_cast<uint32_t>(room(i)));
    const Grammar::Expr more = g_.choice({g_.sequence({digit('0', previous(f[i])), digits(0, room(i + 1))}),
                                          g_.sequence({digit(f[i], f[i]), fraction_at_most(f, i + 1, excludes)})});
    return i == 0 ? more : g_.optional(more);
  }
  Grammar::Expr at_most(const std::string& f, bool excludes) {
    if (!f.empty()) return g_.optional(g_.sequence({g_.bytes("."), fraction_at_most(f, 0, excludes)}));
    if (excludes) return g_.nothing();
    return g_.optional(g_.sequence({g_.bytes("."), g_.repeat(g_.bytes("0"), 1, static_cast<uint32_t>(max_fraction_))}));
  }
  Grammar::Expr between(const std::string& lo, bool excludes_lo, const std::string& hi, bool excludes_hi) {
    const Grammar::Expr some = g_.sequence({g_.bytes("."), fraction_between(lo, excludes_lo, hi, excludes_hi, 0)});
    // A number without a fraction is the whole number, which may be within the bounds.
    const bool has_whole = lo.empty() && !excludes_lo && !(hi.empty() && excludes_hi);
    return has_whole ? g_.optional(some) : some;
  }
  Grammar::Expr fraction_between(const std::string& lo, bool excludes_lo, const std::string& hi, bool excludes_hi,
                                 size_t i) {
    if (i >= max_fraction_) return g_.nothing();
    const char a = i < lo.size() ? lo[i] : '0', b = i < hi.size() ? hi[i] : '0';
    std::vector<Grammar::Expr> items;
    if (a == b) {
      // With this digit, the digits so far are a prefix of both bounds. The number may end here if it reaches the lower
      // bound.
      const size_t n = i + 1;
      const bool reaches_lo = n >= lo.size() && !excludes_lo, is_hi = n >= hi.size();
      const Grammar::Expr rest = fraction_between(lo, excludes_lo, hi, excludes_hi, n);
      const bool may_end = (reaches_lo && !(is_hi && excludes_hi)) || (n >= lo.size() && n < hi.size() && reaches_lo);
      items.push_back(g_.sequence({digit(a, a), may_end ? g_.optional(rest) : rest}));
    } else if (a < b) {
      const std::string_view low = i < lo.size() ? std::string_view(lo) : std::string_view();
      items.push_back(
          g_.sequence({digit(a, a), low.empty() ? (excludes_lo ? more_than_zeros(i + 1) : digits(0, room(i + 1)))
                                                : fraction_at_least(low, i + 1, excludes_lo)}));
      items.push_back(g_.sequence({digit(next(a), previous(b)), digits(0, room(i + 1))}));
      items.push_back(g_.sequence({digit(b, b), fraction_at_most(hi, i + 1, excludes_hi)}));
    }
    return g_.choice(std::move(items));
  }

  Grammar& g_;
  size_t max_fraction_;
};

}  // namespace

Grammar::Expr number_expression(Grammar& g, const NumberRange& range) {
  const auto digit = [&](char lo) { return g.byte_range(static_cast<uint8_t>(lo), '9'); };
  if (!range.has_bounds()) {
    const Grammar::Expr whole = g.choice(
        {g.bytes("0"), g.sequence({digit('1'), g.repeat(digit('0'), 0, static_cast<uint32_t>(kMaxWhole) - 1)})});
    const Grammar::Expr minus = g.optional(g.bytes("-"));
    if (range.is_integer) return g.sequence({minus, whole});
    const Grammar::Expr fraction = g.optional(g.sequence({g.bytes("."), g.repeat(digit('0'), 1, kMaxWhole)}));
    if (!range.has_exponent) return g.sequence({minus, whole, fraction});
    const Grammar::Expr sign = g.optional(g.choice({g.bytes("+"), g.bytes("-")}));
    const Grammar::Expr exponent =
        g.optional(g.sequence({g.choice({g.bytes("e"), g.bytes("E")}), sign, g.repeat(digit('0'), 1, 2)}));
    return g.sequence({minus, whole, fraction, exponent});
  }
  const Decimal zero;
  size_t fraction = kMaxFraction;
  for (const auto* bound : {&range.least, &range.greatest})
    if (*bound) fraction = std::max(fraction, (*bound)->fraction.size() + 2);
  NumberBuilder builder(g, fraction);
  // A side without a bound is replaced by a number with more digits than the bound of the other side.
  const auto far = [&](const std::optional<Decimal>& other) {
    Decimal d;
    d.whole = std::string(std::max(kMaxWhole, other ? other->whole.size() + 1 : 0), '9');
    return d;
  };
  std::vector<Grammar::Expr> items;
  const auto add = [&](Decimal lo, bool excludes_lo, Decimal hi, bool excludes_hi, bool negative) {
    Grammar::Expr part;
    if (range.is_integer) {
      if (!lo.is_integer() || excludes_lo) lo = lo.plus_one();
      if (hi.is_integer() && excludes_hi) {
        if (hi.is_zero()) return;
        hi = hi.minus_one();
      }
      part = builder.integers(lo.whole, hi.whole);
    } else {
      part = builder.decimals(lo, excludes_lo, hi, excludes_hi);
    }
    items.push_back(negative ? g.sequence({g.bytes("-"), part}) : part);
  };
  const Decimal least = range.least.value_or(-far(range.greatest)),
                greatest = range.greatest.value_or(far(range.least));
  if (!greatest.negative) {
    const bool from_zero = least.negative;
    add(from_zero ? zero : least, !from_zero && range.excludes_least, greatest, range.excludes_greatest, false);
  }
  if (least.negative) {
    const bool to_zero = !greatest.negative;
    add(to_zero ? zero : -greatest, to_zero || range.excludes_greatest, -least, range.excludes_least, true);
  }
  return g.choice(std::move(items));
}

Grammar::Expr multiples_expression(Grammar& g, uint32_t divisor, uint32_t scale, bool with_fraction) {
  // The states are, in this order: the start; after a minus; after a single 0; the remainders, for the digits before
  // the point and for each digit of the fraction; the digits after these, which are zeros.
  Grammar::Graph graph;
  graph.num_states = 3 + divisor * (scale + 1) + 1;
  const uint32_t zeros = graph.num_states - 1, minus = 1, zero = 2;
  const auto state = [&](uint32_t digits, uint32_t r) { return 3 + digits * divisor + r; };
  std::vector<Grammar::Expr> digits;
  for (char d = '0'; d <= '9'; ++d) digits.push_back(g.byte_range(static_cast<uint8_t>(d), static_cast<uint8_t>(d)));
  graph.add(0, g.bytes("-"), minus);
  std::vector<uint32_t> power = {1 % divisor};  // powers of ten modulo the divisor
  for (uint32_t k = 0; k < scale; ++k) power.push_back(power.back() * 10 % divisor);
  const auto is_multiple = [&](uint32_t k, uint32_t r) { return uint64_t{r} * power[scale - k] % divisor == 0; };
  for (const uint32_t from : {0U, minus}) {
    graph.add(from, digits[0], zero);
    for (uint32_t d = 1; d <= 9; ++d) graph.add(from, digits[d], state(0, d % divisor));
  }
  for (uint32_t r = 0; r < divisor; ++r)
    for (uint32_t d = 0; d <= 9; ++d) graph.add(state(0, r), digits[d], state(0, (10 * r + d) % divisor));
  graph.accepts = {zero};
  for (uint32_t r = 0; r < divisor; ++r)
    if (is_multiple(0, r)) graph.accepts.push_back(state(0, r));
  const Grammar::Expr point = g.bytes(".");
  const auto first_digits = [&](uint32_t from, uint32_t r) {
    for (uint32_t d = 0; d <= 9 && scale > 0; ++d)
      graph.add(from, g.sequence({point, digits[d]}), state(1, (10 * r + d) % divisor));
    if (scale == 0 && with_fraction && r % divisor == 0) graph.add(from, g.sequence({point, digits[0]}), zeros);
  };
  first_digits(zero, 0);
  for (uint32_t r = 0; r < divisor; ++r) first_digits(state(0, r), r);
  for (uint32_t k = 1; k <= scale; ++k)
    for (uint32_t r = 0; r < divisor; ++r) {
      if (is_multiple(k, r)) graph.accepts.push_back(state(k, r));
      for (uint32_t d = 0; d <= 9 && k < scale; ++d)
        graph.add(state(k, r), digits[d], state(k + 1, (10 * r + d) % divisor));
      if (k == scale && r == 0) graph.add(state(k, r), digits[0], zeros);
    }
  graph.add(zeros, digits[0], zeros);
  graph.accepts.push_back(zeros);
  return g.graph(std::move(graph));
}

Grammar::Expr spellings_of(Grammar& g, const Decimal& number) {
  const Grammar::Expr zeros = g.repeat(g.bytes("0"), 0, Grammar::kUnbounded);
  const Grammar::Expr whole = g.bytes(number.whole);
  const Grammar::Expr sign = number.is_zero() ? g.optional(g.bytes("-")) : number.negative ? g.bytes("-") : g.empty();
  if (number.is_integer()) return g.sequence({sign, whole, g.optional(g.sequence({g.bytes(".0"), zeros}))});
  return g.sequence({sign, whole, g.bytes("."), g.bytes(number.fraction), zeros});
}

}  // namespace redline
