#include "diffusion/step_cache/measures.h"

namespace redline {
namespace {

double mean(double sum, size_t count) { return count == 0 ? 0 : sum / static_cast<double>(count); }

}  // namespace

double mean_abs(std::span<const float> a) {
  return mean(lane_sum(std::ssize(a), [&](int64_t i) { return std::fabs(a[i]); }), a.size());
}

double mean_abs_difference(std::span<const float> a, std::span<const float> b) {
  return mean(lane_sum(std::ssize(a), [&](int64_t i) { return std::fabs(a[i] - b[i]); }), a.size());
}

double relative_l1(std::span<const float> a, std::span<const float> b) {
  return mean_abs_difference(a, b) / mean_abs(b);
}

double dot(std::span<const float> a, std::span<const float> b) {
  return lane_sum(std::ssize(a), [&](int64_t i) { return static_cast<double>(a[i]) * b[i]; });
}

void subtract(std::span<const float> a, std::span<const float> b, std::span<float> out) {
  for (int64_t i = 0; i < std::ssize(out); ++i) out[i] = a[i] - b[i];
}

}  // namespace redline
