#include "tensor/dim.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

namespace redline {

namespace {

constexpr int kNumFixed = static_cast<int>(Symbol::kFirstExtent);

/// The names of the extents of all models in this process.
class ExtentNames {
 public:
  Symbol find_or_add(std::string_view name) {
    const std::lock_guard lock(mutex_);
    int i = 0;
    while (i < count_ && names_[static_cast<size_t>(i)] != name) ++i;
    if (i == count_) {
      REDLINE_CHECK(count_ < std::ssize(names_));
      names_[static_cast<size_t>(count_++)] = name;
    }
    return static_cast<Symbol>(kNumFixed + i);
  }
  /// A name never changes once it is added, so the view stays valid.
  std::string_view name(int index) {
    const std::lock_guard lock(mutex_);
    return index < count_ ? std::string_view(names_[static_cast<size_t>(index)]) : "unnamed extent";
  }

 private:
  std::mutex mutex_;
  std::array<std::string, kNumSymbols - kNumFixed> names_;
  int count_ = 0;
};

ExtentNames& extent_names() {
  static ExtentNames names;
  return names;
}

}  // namespace

Symbol extent_symbol(std::string_view name) { return extent_names().find_or_add(name); }

std::string_view symbol_name(Symbol symbol) {
  static constexpr std::string_view kNames[kNumFixed] = {"tokens",         "sequences", "logit_rows",  "hidden_rows",
                                                         "embedding_rows", "batch",     "text_tokens", "image_tokens"};
  const int index = static_cast<int>(symbol);
  return index < kNumFixed ? kNames[index] : extent_names().name(index - kNumFixed);
}

Dim::Dim(int64_t constant) {
  if (constant != 0) terms_.push_back({constant, {}});
}
Dim::Dim(Symbol symbol) {
  Term term{1, {}};
  term.power[static_cast<int>(symbol)] = 1;
  terms_.push_back(term);
}

bool Dim::is_constant() const {
  return terms_.empty() || (terms_.size() == 1 && std::all_of(std::begin(terms_[0].power), std::end(terms_[0].power),
                                                              [](uint8_t p) { return p == 0; }));
}
int64_t Dim::constant() const {
  REDLINE_CHECK(is_constant());
  return terms_.empty() ? 0 : terms_[0].factor;
}

int64_t Dim::eval(const SymbolValues& values) const {
  int64_t sum = 0;
  for (const Term& term : terms_) {
    int64_t product = term.factor;
    // Nearly all powers are zero, and sizes are evaluated in every step: eight powers are tested at once.
    for (int first = 0; first < kNumSymbols; first += 8) {
      uint64_t powers = 0;
      std::memcpy(&powers, term.power + first, sizeof powers);
      if (powers == 0) continue;
      for (int s = first; s < first + 8; ++s)
        for (int p = 0; p < term.power[s]; ++p) product *= values.value[s];
    }
    sum += product;
  }
  return sum;
}

void Dim::add_term(const Term& term) {
  auto higher = [](const Term& a, const Term& b) { return std::memcmp(a.power, b.power, sizeof a.power) > 0; };
  auto at = std::lower_bound(terms_.begin(), terms_.end(), term, higher);
  if (at != terms_.end() && std::memcmp(at->power, term.power, sizeof term.power) == 0) {
    at->factor += term.factor;
    if (at->factor == 0) terms_.erase(at);
  } else if (term.factor != 0) {
    terms_.insert(at, term);
  }
}

Dim operator+(const Dim& a, const Dim& b) {
  Dim sum = a;
  for (const Dim::Term& term : b.terms_) sum.add_term(term);
  return sum;
}
Dim operator*(const Dim& a, const Dim& b) {
  Dim product;
  for (const Dim::Term& x : a.terms_)
    for (const Dim::Term& y : b.terms_) {
      Dim::Term term{x.factor * y.factor, {}};
      for (int s = 0; s < kNumSymbols; ++s) term.power[s] = static_cast<uint8_t>(x.power[s] + y.power[s]);
      product.add_term(term);
    }
  return product;
}

std::string Dim::to_string() const {
  if (terms_.empty()) return "0";
  std::string text;
  for (const Term& term : terms_) {
    if (!text.empty()) text += " + ";
    std::string symbols;
    for (int s = 0; s < kNumSymbols; ++s)
      for (int p = 0; p < term.power[s]; ++p) {
        if (!symbols.empty()) symbols += "*";
        symbols += symbol_name(static_cast<Symbol>(s));
      }
    if (symbols.empty()) text += fmt::format("{}", term.factor);
    else if (term.factor == 1) text += symbols;
    else text += fmt::format("{}*{}", symbols, term.factor);
  }
  return text;
}

Dim num_elements(const Shape& shape) {
  Dim product = 1;
  for (const Dim& dim : shape) product = product * dim;
  return product;
}
std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + shape[i].to_string();
  return text + "]";
}

}  // namespace redline
