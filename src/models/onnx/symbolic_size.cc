#include "models/onnx/symbolic_size.h"

#include <fmt/format.h>

#include <algorithm>

namespace redline {

bool SymbolicSize::is_nonnegative() const {
  return constant_ >= 0 && std::all_of(terms_.begin(), terms_.end(), [](const Term& t) { return t.factor > 0; });
}

SymbolicSize SymbolicSizes::symbol(std::string name) {
  const auto [at, is_new] = by_name_.try_emplace(std::move(name), static_cast<uint32_t>(names_.size()));
  if (is_new) names_.push_back(at->first);
  SymbolicSize size;
  size.terms_.push_back({1, {at->second}});
  return size;
}

SymbolicSize SymbolicSizes::named(std::string_view name) { return symbol(std::string(name)); }

SymbolicSize SymbolicSizes::unknown() {
  std::string name;
  do name = fmt::format("?{}", ++num_unknown_);
  while (by_name_.contains(name));  // a file may use such a name itself
  return symbol(std::move(name));
}

bool SymbolicSizes::is_unknown(const SymbolicSize& size) const {
  return size.is_symbol() && names_[size.terms_[0].symbols[0]].starts_with('?');
}

/// Returns false if the result overflows or grows too large.
bool SymbolicSizes::add_term(SymbolicSize& to, const SymbolicSize::Term& term) const {
  if (term.symbols.empty()) return !__builtin_add_overflow(to.constant_, term.factor, &to.constant_);
  const auto at = std::lower_bound(to.terms_.begin(), to.terms_.end(), term,
                                   [](const auto& a, const auto& b) { return a.symbols < b.symbols; });
  if (at == to.terms_.end() || at->symbols != term.symbols) {
    if (to.terms_.size() == kMaxTerms || term.symbols.size() > kMaxSymbols) return false;
    to.terms_.insert(at, term);
    return true;
  }
  if (__builtin_add_overflow(at->factor, term.factor, &at->factor)) return false;
  if (at->factor == 0) to.terms_.erase(at);
  return true;
}

SymbolicSize SymbolicSizes::add(const SymbolicSize& a, const SymbolicSize& b) {
  SymbolicSize sum = a;
  if (!add_term(sum, {b.constant_, {}})) return unknown();
  for (const auto& term : b.terms_)
    if (!add_term(sum, term)) return unknown();
  return sum;
}

SymbolicSize SymbolicSizes::multiply(const SymbolicSize& a, const SymbolicSize& b) {
  SymbolicSize out;
  const auto add_product = [&](const SymbolicSize::Term& x, const SymbolicSize::Term& y) {
    SymbolicSize::Term term;
    if (__builtin_mul_overflow(x.factor, y.factor, &term.factor)) return false;
    if (term.factor == 0) return true;
    term.symbols.resize(x.symbols.size() + y.symbols.size());
    std::merge(x.symbols.begin(), x.symbols.end(), y.symbols.begin(), y.symbols.end(), term.symbols.begin());
    return add_term(out, term);
  };
  const SymbolicSize::Term a_constant{a.constant_, {}}, b_constant{b.constant_, {}};
  if (!add_product(a_constant, b_constant)) return unknown();
  for (const auto& x : a.terms_)
    if (!add_product(x, b_constant)) return unknown();
  for (const auto& y : b.terms_) {
    if (!add_product(a_constant, y)) return unknown();
    for (const auto& x : a.terms_)
      if (!add_product(x, y)) return unknown();
  }
  return out;
}

SymbolicSize SymbolicSizes::floor_divide(const SymbolicSize& a, int64_t divisor) {
  const auto quotient = [&](int64_t n) { return n / divisor - (n % divisor < 0 ? 1 : 0); };
  const auto remainder = [&](int64_t n) { return n % divisor + (n % divisor < 0 ? divisor : 0); };
  SymbolicSize whole(quotient(a.constant_)), rest(remainder(a.constant_));
  for (const auto& term : a.terms_) {
    const int64_t q = quotient(term.factor), r = remainder(term.factor);
    if (q != 0) whole.terms_.push_back({q, term.symbols});
    if (r != 0) rest.terms_.push_back({r, term.symbols});
  }
  if (rest.is_constant()) return whole;  // less than the divisor
  const std::string text_of_rest = text(rest);
  return add(whole, expression(rest.constant_ == 0 && rest.terms_.size() == 1
                                   ? fmt::format("floor({}/{})", text_of_rest, divisor)
                                   : fmt::format("floor(({})/{})", text_of_rest, divisor)));
}

/// Returns the symbol of an expression; a new one if its text is long, since expressions of expressions spell them all.
SymbolicSize SymbolicSizes::expression(std::string text) {
  constexpr size_t kMaxText = 256;
  return text.size() > kMaxText ? unknown() : symbol(std::move(text));
}

SymbolicSize SymbolicSizes::smaller(const SymbolicSize& a, const SymbolicSize& b) {
  if (a.is_constant() && b.is_constant()) return std::min(a.constant_, b.constant_);
  if (subtract(b, a).is_nonnegative()) return a;
  if (subtract(a, b).is_nonnegative()) return b;
  return expression(fmt::format("min({}, {})", text(a), text(b)));
}

SymbolicSize SymbolicSizes::larger(const SymbolicSize& a, const SymbolicSize& b) {
  if (a.is_constant() && b.is_constant()) return std::max(a.constant_, b.constant_);
  if (subtract(a, b).is_nonnegative()) return a;
  if (subtract(b, a).is_nonnegative()) return b;
  return expression(fmt::format("max({}, {})", text(a), text(b)));
}

std::optional<SymbolicSize> SymbolicSizes::divide_exactly(const SymbolicSize& a, const SymbolicSize& b) {
  if (a == b && !(a.is_constant() && a.constant_ == 0)) return SymbolicSize(1);
  SymbolicSize::Term by;
  if (b.is_constant()) by = {b.constant_, {}};
  else if (b.constant_ == 0 && b.terms_.size() == 1) by = b.terms_[0];
  else return std::nullopt;
  if (by.factor <= 0 || a.constant_ % by.factor != 0 || (a.constant_ != 0 && !by.symbols.empty())) return std::nullopt;
  SymbolicSize out(a.constant_ / by.factor);
  for (const auto& term : a.terms_) {
    SymbolicSize::Term part{term.factor / by.factor, {}};
    if (term.factor % by.factor != 0 ||
        !std::includes(term.symbols.begin(), term.symbols.end(), by.symbols.begin(), by.symbols.end()))
      return std::nullopt;
    std::set_difference(term.symbols.begin(), term.symbols.end(), by.symbols.begin(), by.symbols.end(),
                        std::back_inserter(part.symbols));
    if (!add_term(out, part)) return std::nullopt;
  }
  return out;
}

SymbolicSize SymbolicSizes::product(const SymbolicShape& shape, size_t begin, size_t end) {
  SymbolicSize out = 1;
  for (size_t i = begin; i < end; ++i) out = multiply(out, shape[i]);
  return out;
}

std::string SymbolicSizes::text(const SymbolicSize& size) const {
  std::string out;
  for (const auto& term : size.terms_) {
    const bool is_first = out.empty(), is_negative = term.factor < 0;
    const uint64_t factor = is_negative ? 0 - static_cast<uint64_t>(term.factor) : static_cast<uint64_t>(term.factor);
    out += is_first ? (is_negative ? "-" : "") : (is_negative ? " - " : " + ");
    for (size_t i = 0; i < term.symbols.size(); ++i) out += (i ? "*" : "") + names_[term.symbols[i]];
    if (factor != 1) out += fmt::format("*{}", factor);
  }
  if (out.empty()) return fmt::format("{}", size.constant_);
  if (size.constant_ > 0) out += fmt::format(" + {}", size.constant_);
  if (size.constant_ < 0) out += fmt::format(" - {}", 0 - static_cast<uint64_t>(size.constant_));
  return out;
}

std::string SymbolicSizes::text(const SymbolicShape& shape) const {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + text(shape[i]);
  return out + "]";
}

}  // namespace redline
