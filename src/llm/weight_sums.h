// Exact integer sums of token weights, and the search for the token at which the sum of the most likely ones reaches a
// bound.
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
/// Returns true if `a` is more likely than `b`. Ties are resolved in favour of the lower id.
inline bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/// Returns a weight, at most 2, in units of 2^-42, rounded to nearest even like BlockExpSumArgs::sums.
inline int64_t weight_units(float weight) {
  constexpr double kMagic = 0x1.8p52;  // leaves the integer in the low bits
  return std::bit_cast<int64_t>(double{weight} * 0x1p42 + kMagic) - std::bit_cast<int64_t>(kMagic);
}
inline constexpr double kWeightUnit = 0x1p-42;

/// Returns the units that a sum has to reach for a share p > 0 of `units`.
int64_t share_of_units(double p, int64_t units);
/// Returns the threshold for a random number `u` in [0, 1): the first token, in the order of ids, whose cumulative
/// units exceed it is sampled.
inline int64_t units_at(double u, int64_t units) {
  return std::min(static_cast<int64_t>(u * static_cast<double>(units)), units - 1);
}

/// Finds a token without sorting all of them. Each pass sums the weights of ranges of logits and selects the range
/// where the sum reaches the bound, which the next pass divides.
class WeightSearch {
 public:
  void reserve(size_t tokens) { chosen_.reserve(tokens); }
  /// Returns the last token of the smallest set of most likely tokens whose units reach `wanted`, which is between 1
  /// and the sum of all. `tokens` is in the order of ids.
  Candidate last(std::span<const Candidate> tokens, std::span<const float> weights, int64_t wanted);

 private:
  std::vector<uint32_t> chosen_;
  std::vector<int64_t> sums_;
};

}  // namespace redline
