// Reductions over the values of one row, for statistics and forecasters.
//
// Differences are taken in float32, as the published rules do; sums run in float64 over eight lanes that are reduced
// in a fixed order, so a decision is the same on every machine and for any number of threads. A device has an order of
// its own, so there a threshold that is met exactly may fall to the other side.
#pragma once

#include <cmath>
#include <cstdint>

#include "diffusion/step_cache/state_tensor.h"

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

// Of values on a device, the device sums. Its error, which the next step reports, is a NaN here.

/// mean |a|; 0 for an empty view.
double mean_abs(const StateView& a);
/// mean |a - b|; both views have the same length.
double mean_abs_difference(const StateView& a, const StateView& b);
/// mean |a - b| / mean |b|: how far a moved from the reference b. Not finite when b is all zeros.
double relative_l1(const StateView& a, const StateView& b);
double dot(const StateView& a, const StateView& b);
/// Sum of (a - b) (c - d).
double product_of_changes(const StateView& a, const StateView& b, const StateView& c, const StateView& d);

}  // namespace redline
