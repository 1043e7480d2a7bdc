// drift: the expected error of a skip, extrapolated from the change between the last two computed steps.
//
// The rate of change is e = rms(v_b - v_a) / rms(v_b) over the last two computed outputs, per unit of
// u(sigma) (forecaster.h); measuring it is free. At a later step i the output is assumed to have changed by
// e (u_i - u_b). The statistic is that times the length of the step, u_(i+1) - u_i. u also serves as the weight because
// early errors persist through all later steps and are amplified by guidance.
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
    const double now = u_of_sigma(at.sigma), next = u_of_sigma(at.next_sigma);
    return rate_ * std::fabs(now - u_) * std::fabs(next - now);
  }
  void computed(const CacheRow& row) override {
    const double u = u_of_sigma(row.at.sigma);
    if (!output_.empty()) {
      const double moved = std::sqrt(lane_sum(std::ssize(row.model_output), [&](int64_t i) {
        return (row.model_output[i] - output_[i]) * (row.model_output[i] - output_[i]);
      }));
      rate_ = moved / std::sqrt(dot(row.model_output, row.model_output)) / std::fabs(u - u_);
    }
    u_ = u;
    output_.assign(row.model_output.begin(), row.model_output.end());
  }

 private:
  std::vector<float> output_;
  double rate_ = std::numeric_limits<double>::infinity(), u_ = 0;
};

}  // namespace

std::unique_ptr<Statistic> make_drift_statistic() { return std::make_unique<DriftStatistic>(); }

}  // namespace redline
