#include "diffusion/step_cache/measures.h"

#include <limits>

namespace redline {
namespace {

double mean(double sum, int64_t count) { return count == 0 ? 0 : sum / static_cast<double>(count); }

/// Returns the device that computes with all views; nullptr: the host computes.
BufferMath* math_of(std::initializer_list<const StateView*> views) {
  BufferMath* const math = (*views.begin())->math();
  for (const StateView* view : views)
    if (math == nullptr || view->math() == nullptr || view->math()->device() != math->device()) return nullptr;
  return math;
}

double value_of(const Result<double>& sum) { return sum.ok() ? *sum : std::numeric_limits<double>::quiet_NaN(); }

}  // namespace

double mean_abs(const StateView& a) {
  if (BufferMath* const math = math_of({&a})) return mean(value_of(math->distance(a.part(), {}, a.size())), a.size());
  const std::span<float> x = a.host();
  return mean(lane_sum(a.size(), [&](int64_t i) { return std::fabs(x[i]); }), a.size());
}

double mean_abs_difference(const StateView& a, const StateView& b) {
  if (BufferMath* const math = math_of({&a, &b}))
    return mean(value_of(math->distance(a.part(), b.part(), a.size())), a.size());
  const std::span<float> x = a.host(), y = b.host();
  return mean(lane_sum(a.size(), [&](int64_t i) { return std::fabs(x[i] - y[i]); }), a.size());
}

double relative_l1(const StateView& a, const StateView& b) { return mean_abs_difference(a, b) / mean_abs(b); }

double dot(const StateView& a, const StateView& b) {
  if (BufferMath* const math = math_of({&a, &b})) return value_of(math->product(a.part(), {}, b.part(), {}, a.size()));
  const std::span<float> x = a.host(), y = b.host();
  return lane_sum(a.size(), [&](int64_t i) { return static_cast<double>(x[i]) * y[i]; });
}

double product_of_changes(const StateView& a, const StateView& b, const StateView& c, const StateView& d) {
  if (BufferMath* const math = math_of({&a, &b, &c, &d}))
    return value_of(math->product(a.part(), b.part(), c.part(), d.part(), b.size()));
  const std::span<float> x = a.host(), x0 = b.host(), y = c.host(), y0 = d.host();
  return lane_sum(b.size(), [&](int64_t i) { return (x[i] - x0[i]) * (y[i] - y0[i]); });
}

}  // namespace redline
