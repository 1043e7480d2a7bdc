// drift: the error that a skip is going to make, from the error that it would have made up to the last computed step.
//
// Measured where the truth is at hand and costs nothing: e = rms(v_b - v_a) / rms(v_b) over the last two computed
// steps, per unit of the forecast clock u (forecaster.h). At a later step i the output is taken to have gone e (u_i -
// u_b) further, and the picture to suffer from that for the length of the step, u_(i+1) - u_i: the clock is also the
// weight, because an error made early is carried, and amplified by guidance, through all later steps.
#include <cmath>
#include <limits>

#include "diffusion/step_cache/forecaster.h"
#include "diffusion/step_cache/measures.h"
#include "diffusion/step_cache/statistic.h"

namespace redline {
namespace {

class DriftStatistic final : public Statistic {
 public:
  StatisticInput reads() const override { return StatisticInput::kLatents; }
  double measure(const StepView& view) override {
    const StepPoint& at = view.row.at;
    const double now = forecast_clock(at.sigma), next = forecast_clock(at.next_sigma);
    return rate_ * std::fabs(now - clock_) * std::fabs(next - now);
  }
  void computed(const CacheRow& row) override {
    const double clock = forecast_clock(row.at.sigma);
    if (!output_.empty()) {
      const double moved = std::sqrt(lane_sum(std::ssize(row.velocity), [&](int64_t i) {
        return (row.velocity[i] - output_[i]) * (row.velocity[i] - output_[i]);
      }));
      rate_ = moved / std::sqrt(dot(row.velocity, row.velocity)) / std::fabs(clock - clock_);
    }
    clock_ = clock;
    output_.assign(row.velocity.begin(), row.velocity.end());
  }

 private:
  std::vector<float> output_;
  double rate_ = std::numeric_limits<double>::infinity(), clock_ = 0;
};

}  // namespace

std::unique_ptr<Statistic> make_drift_statistic() { return std::make_unique<DriftStatistic>(); }

}  // namespace redline
