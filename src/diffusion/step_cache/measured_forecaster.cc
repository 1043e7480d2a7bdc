// measured: a straight line through the last two computed steps, damped by how well the previous line predicted.
//
// With u(sigma) = -log(1.05 - sigma), a line from step a through step b forecasts step i at
//   R_b + rho r_i (R_b - R_a),   r_i = (u_i - u_b) / (u_b - u_a).
// rho is measured at each computed step: the share of the predicted change that really occurred,
// <R - R_b, R_b - R_a> / (r |R_b - R_a|^2), clipped to [0, 1]. 0 is reuse, 1 the full line. It costs one pass at
// computed steps and nothing at skipped ones. Where the output changes direction at every step (the first steps under
// strong guidance) it degrades to reuse.
//
// Under guidance the output changes fastest near pure noise, about as 1 / (1 - sigma); in u it changes
// evenly. 0.05 keeps u finite at sigma = 1.
#include <algorithm>
#include <cmath>

#include "diffusion/step_cache/forecaster.h"
#include "diffusion/step_cache/measures.h"

namespace redline {
namespace {

class MeasuredForecaster final : public Forecaster {
 public:
  int64_t depth() const override { return 3; }

  void stored(const History& history) override {
    if (history.size() < 3) return;
    const auto &now = history[0].image, &b = history[1].image, &a = history[2].image;
    const double ratio = (u_of_sigma(history[0].sigma) - u_of_sigma(history[1].sigma)) /
                         (u_of_sigma(history[1].sigma) - u_of_sigma(history[2].sigma));
    const double went = product_of_changes(now, b, b, a), length = product_of_changes(b, a, b, a);
    const double share = went / (ratio * length);
    trust_ = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0.0;
  }

  void weights(const History& history, const ForecastPoint& at, int64_t, std::span<double> weights) override {
    weights[0] = 1;
    if (history.size() < 2) return;
    const double b = u_of_sigma(history[0].sigma), a = u_of_sigma(history[1].sigma);
    const double way = trust_ * (u_of_sigma(at.sigma) - b) / (b - a);
    weights[0] = 1 + way;
    weights[1] = -way;
  }

 private:
  double trust_ = 0;
};

}  // namespace

double u_of_sigma(double sigma) { return -std::log(std::max(1.05 - sigma, 1e-3)); }

std::unique_ptr<Forecaster> make_measured_forecaster() { return std::make_unique<MeasuredForecaster>(); }

namespace {
constexpr ForecasterRow kMeasuredRows[] = {
    {"measured", "linear in u(sigma), damped by the previous forecast's error", make_measured_forecaster}};
}  // namespace
extern const ForecasterRows kMeasuredForecasters = kMeasuredRows;

}  // namespace redline
