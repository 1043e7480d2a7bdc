// Reductions over the values of one row, for statistics and forecasters.
//
// Differences are taken in float32, as the published rules do; sums run in float64 over eight lanes that are reduced in
// a fixed order, so a decision is the same on every machine and for any number of threads. A device sums in another
// order, so a value that is exactly at a threshold may fall on the other side there.
#pragma once

#include <cmath>
#include <cstdint>

#include "diffusion/step_cache/state_tensor.h"

namespace redline {

/// Returns the sum of term(i) for i in [0, n).
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

// The device computes sums of values on a device. If it fails, these functions return NaN, and the next step reports
// the error.

/// Returns mean |a|; 0 for an empty view.
double mean_abs(const StateView& a);
/// Returns mean |a - b|; both views have the same length.
double mean_abs_difference(const StateView& a, const StateView& b);
/// Returns mean |a - b| / mean |b|: how far a has moved from the reference b. Not finite if b is all zeros.
double relative_l1(const StateView& a, const StateView& b);
double dot(const StateView& a, const StateView& b);
/// Returns the sum of (a - b) (c - d).
double product_of_changes(const StateView& a, const StateView& b, const StateView& c, const StateView& d);

}  // namespace redline
