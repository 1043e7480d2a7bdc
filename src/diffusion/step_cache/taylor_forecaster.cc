// taylor1, taylor2, ...: Taylor series by step number (TaylorSeer, arXiv:2503.06923).
//
// At a computed step f_0 = R and f_(i+1) = (f_i - f_i of the previous computed step) / (steps between the two); a
// forecast g steps later is sum_i f_i g^i / i!. With unequal gaps f_2 and higher are not the derivatives of a
// polynomial through the points; this is the published rule, and `sigma2` is the alternative.
#include <algorithm>

#include "diffusion/step_cache/forecaster.h"

namespace redline {
namespace {

class TaylorForecaster final : public Forecaster {
 public:
  TaylorForecaster(int64_t order, int64_t first) : order_(order), first_(first) {}
  int64_t depth() const override { return order_ + 1; }

  void stored(const History& history) override {
    // factors[i][k]: the weight of history[k] in f_i. The former history[k] is history[k + 1] now.
    std::vector<std::vector<double>> now(1, std::vector<double>(depth(), 0.0));
    now[0][0] = 1;
    const int64_t step = history[0].step;
    for (int64_t i = 0; i < order_ && i < std::ssize(factors_) && step > first_; ++i) {
      const double gap = static_cast<double>(step - last_step_);
      std::vector<double> next(depth(), 0.0);
      for (int64_t k = 0; k < depth(); ++k) next[k] = (now[i][k] - (k > 0 ? factors_[i][k - 1] : 0.0)) / gap;
      now.push_back(std::move(next));
    }
    factors_ = std::move(now);
    last_step_ = step;
  }

  void weights(const History&, const ForecastPoint& at, int64_t, std::span<double> weights) override {
    double term = 1;  // g^i / i!
    for (int64_t i = 0; i < std::ssize(factors_); ++i) {
      if (i > 0) term *= static_cast<double>(at.step - last_step_) / static_cast<double>(i);
      for (int64_t k = 0; k < std::min<int64_t>(std::ssize(weights), depth()); ++k) weights[k] += term * factors_[i][k];
    }
  }

 private:
  int64_t order_, first_, last_step_ = 0;
  std::vector<std::vector<double>> factors_;
};

}  // namespace

std::unique_ptr<Forecaster> make_taylor_forecaster(int64_t order, int64_t first) {
  return std::make_unique<TaylorForecaster>(order, first);
}

namespace {
constexpr ForecasterRow kTaylorRows[] = {
    {"taylor1", "Taylor series by step number, first order", [] { return make_taylor_forecaster(1); }},
    {"taylor2", "Taylor series by step number, second order", [] { return make_taylor_forecaster(2); }},
    {"taylor3", "Taylor series by step number, third order", [] { return make_taylor_forecaster(3); }},
};
}  // namespace
extern const ForecasterRows kTaylorForecasters = kTaylorRows;

}  // namespace redline
