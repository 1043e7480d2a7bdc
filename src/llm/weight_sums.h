// Sums of weights of tokens, exact in integers, and the token at which the sum of the likeliest ones reaches a bound.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace redline {

struct Candidate {
  float logit;
  int32_t id;
};
/// Ties are resolved in favour of the lower id.
inline bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/// A weight, at most 2, in units of 2^-42, rounded to nearest even as BlockExpSumArgs::sums.
inline int64_t weight_units(float weight) {
  constexpr double kMagic = 0x1.8p52;  // leaves the integer in the low bits
  return std::bit_cast<int64_t>(double{weight} * 0x1p42 + kMagic) - std::bit_cast<int64_t>(kMagic);
}
inline constexpr double kWeightUnit = 0x1p-42;

/// A share p, more than 0, of a sum of units: what a sum has to reach.
int64_t share_of_units(double p, int64_t units);
/// The threshold of a random number in [0, 1): the first token, in the order of ids, whose sum of units exceeds it is
/// drawn.
inline int64_t units_at(double u, int64_t units) {
  return std::min(static_cast<int64_t>(u * static_cast<double>(units)), units - 1);
}

/// Finds tokens without a sort of all: one pass sums the weights of ranges of logits, the next ones look into the range
/// where the bound is reached.
class WeightSearch {
 public:
  void reserve(size_t tokens) { chosen_.reserve(tokens); }
  /// The last of the smallest number of likeliest tokens whose units reach `wanted`, from 1 to their sum. The tokens
  /// are in the order of ids.
  Candidate last(std::span<const Candidate> tokens, std::span<const float> weights, int64_t wanted);

 private:
  std::vector<uint32_t> chosen_;
  std::vector<int64_t> sums_;
};

}  // namespace redline
