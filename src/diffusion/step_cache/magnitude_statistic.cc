// MagCache (arXiv:2506.09045): residuals of consecutive steps differ mostly in magnitude, by ratios that hardly
// depend on the prompt. The distance of their product from 1 estimates the error of reuse. Nothing is measured at run
// time.
#include <cmath>

#include "diffusion/step_cache/statistic.h"

namespace redline {
namespace {

class MagnitudeStatistic final : public Statistic {
 public:
  explicit MagnitudeStatistic(std::vector<double> ratios) : ratios_(std::move(ratios)) {}
  StatisticInput reads() const override { return StatisticInput::kLatents; }
  double measure(const StepView& view) override {
    const auto step = static_cast<size_t>(view.row.at.step);
    product_ *= step < ratios_.size() ? ratios_[step] : 1.0;
    return std::fabs(1 - product_);
  }
  void decided(const StepView&, bool computes) override {
    if (computes) product_ = 1;
  }

 private:
  std::vector<double> ratios_;
  double product_ = 1;
};

}  // namespace

std::unique_ptr<Statistic> make_magnitude_statistic(std::vector<double> ratios) {
  return std::make_unique<MagnitudeStatistic>(std::move(ratios));
}

}  // namespace redline
