// The steps of which kernels round activations to multiples (tensor/activation_layout.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "tensor/activation_layout.h"

namespace redline::testing {

/// Steps of the elements of a row in kI8TiledGroups: 127 are the largest of a group. Where 32 elements have at most a
/// quarter of it, steps are halved up to three times for all 32 whose own largest fits.
template <class Float>
std::vector<double> tiled_group_steps(std::span<const Float> x) {
  std::vector<double> steps(x.size());
  const auto largest = [&](size_t begin, size_t count) {
    double most = 0;
    for (size_t k = begin; k < std::min(begin + count, x.size()); ++k) most = std::max(most, std::abs(double{x[k]}));
    return most;
  };
  for (size_t group = 0; group < x.size(); group += kI8Group) {
    const double most = largest(group, kI8Group);
    const size_t end = std::min(group + size_t{kI8Group}, x.size());
    bool has_fine = false;
    for (size_t k = group; k < end; k += kQ8Step) {
      const double own = largest(k, kQ8Step);
      has_fine = has_fine || (own > 0 && own <= most / 4);
    }
    for (size_t k = group; k < end; ++k) {
      steps[k] = most / 127;
      const double own = largest(k / kQ8Step * kQ8Step, kQ8Step);
      for (int halved = 0; has_fine && own > 0 && halved < kQ8MaxShift && own <= most / (2 << halved); ++halved)
        steps[k] /= 2;
    }
  }
  return steps;
}

}  // namespace redline::testing
