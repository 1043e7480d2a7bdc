// Reductions over the values of one row, for statistics and forecasters.
//
// Differences are taken in float32, as the published rules do; sums run in float64 over eight lanes that are reduced
// in a fixed order, so a decision is the same on every machine and for any number of threads.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

namespace redline {

/// Sum of term(i) for i in [0, n).
template <class Term>
double lane_sum(int64_t n, Term&& term) {
  constexpr int64_t kLanes = 8;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(term(i + lane));
  for (int64_t lane = 0; i < n; ++i, ++lane) lanes[lane] += static_cast<double>(term(i));
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/// mean |a|; 0 for an empty span.
double mean_abs(std::span<const float> a);
/// mean |a - b|; both spans have the same length.
double mean_abs_difference(std::span<const float> a, std::span<const float> b);
/// mean |a - b| / mean |b|: how far a moved from the reference b. Not finite when b is all zeros.
double relative_l1(std::span<const float> a, std::span<const float> b);
double dot(std::span<const float> a, std::span<const float> b);

/// out = a - b, elements in float32.
void subtract(std::span<const float> a, std::span<const float> b, std::span<float> out);

}  // namespace redline
