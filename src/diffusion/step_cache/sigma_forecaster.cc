// sigma1, sigma2: the polynomial in sigma through the last computed steps. Step sizes of a
// shifted schedule differ by more than five times in sigma, so a series in step numbers (taylor_forecaster.cc)
// misjudges its horizon.
#include <algorithm>

#include "diffusion/step_cache/forecaster.h"

namespace redline {
namespace {

class SigmaForecaster final : public Forecaster {
 public:
  explicit SigmaForecaster(int64_t order) : order_(order) {}
  int64_t depth() const override { return order_ + 1; }
  void weights(const History& history, const ForecastPoint& at, int64_t, std::span<double> weights) override {
    const int64_t points = std::min(history.size(), depth());
    for (int64_t k = 0; k < points; ++k) {  // Lagrange weights
      double weight = 1;
      for (int64_t other = 0; other < points; ++other)
        if (other != k) weight *= (at.sigma - history[other].sigma) / (history[k].sigma - history[other].sigma);
      weights[k] = weight;
    }
  }

 private:
  int64_t order_;
};

}  // namespace

std::unique_ptr<Forecaster> make_sigma_forecaster(int64_t order) { return std::make_unique<SigmaForecaster>(order); }

namespace {
constexpr ForecasterRow kSigmaRows[] = {
    {"sigma1", "straight line in sigma", [] { return make_sigma_forecaster(1); }},
    {"sigma2", "parabola in sigma", [] { return make_sigma_forecaster(2); }},
};
}  // namespace
extern const ForecasterRows kSigmaForecasters = kSigmaRows;

}  // namespace redline
