#include "llm/weight_sums.h"

#include <algorithm>
#include <cmath>

namespace redline {

int64_t share_of_units(double p, int64_t units) {
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(p * static_cast<double>(units))), 1, units);
}

Candidate WeightSearch::last(std::span<const Candidate> tokens, std::span<const float> weights, int64_t wanted) {
  constexpr size_t kRanges = 1024, kSorted = 48;
  const auto units = [&](uint32_t i) { return weight_units(weights[i]); };
  // Tokens of less than a unit are removed, because they do not change the sum.
  chosen_.resize(tokens.size());
  size_t size = 0;
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    chosen_[size] = i;
    size += units(i) > 0 ? 1 : 0;
  }
  while (size > kSorted) {
    float best = tokens[chosen_[0]].logit, least = best;
    for (size_t k = 1; k < size; ++k) {
      best = std::max(best, tokens[chosen_[k]].logit);
      least = std::min(least, tokens[chosen_[k]].logit);
    }
    const float per_unit = static_cast<float>(kRanges) / (best - least);
    if (!std::isfinite(per_unit)) break;
    // Monotonic in the logit, in spite of rounding.
    const auto range_of = [&](uint32_t i) {
      return static_cast<size_t>(std::min((best - tokens[i].logit) * per_unit, static_cast<float>(kRanges - 1)));
    };
    sums_.assign(kRanges, 0);
    for (size_t k = 0; k < size; ++k) sums_[range_of(chosen_[k])] += units(chosen_[k]);
    size_t range = 0;
    for (; range + 1 < kRanges && sums_[range] < wanted; ++range) wanted -= sums_[range];
    size_t left = 0;
    for (size_t k = 0; k < size; ++k) {
      const uint32_t i = chosen_[k];
      chosen_[left] = i;
      left += range_of(i) == range ? 1 : 0;
    }
    size = left;
  }
  // Equal logits are already in the order of ids.
  const auto end = chosen_.begin() + static_cast<int64_t>(size);
  const auto before = [&](uint32_t a, uint32_t b) { return likelier(tokens[a], tokens[b]); };
  if (!std::is_sorted(chosen_.begin(), end, before)) std::sort(chosen_.begin(), end, before);
  for (size_t k = 0; k < size; ++k) {
    wanted -= units(chosen_[k]);
    if (wanted <= 0) return tokens[chosen_[k]];
  }
  return tokens[chosen_[size - 1]];
}

}  // namespace redline
