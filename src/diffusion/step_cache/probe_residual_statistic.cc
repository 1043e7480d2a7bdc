// The change of the front's residual since the last computed step. Comparing with a computed step bounds the drift
// without an accumulator.
#include <limits>

#include "diffusion/step_cache/measures.h"
#include "diffusion/step_cache/statistic.h"

namespace redline {
namespace {

class ProbeResidualStatistic final : public Statistic {
 public:
  StatisticInput reads() const override { return StatisticInput::kFront; }
  double measure(const StepView& view) override {
    return reference_.empty() ? std::numeric_limits<double>::infinity() : relative_l1(view.probe, reference_);
  }
  void decided(const StepView& view, bool computes) override {
    if (computes) reference_.assign(view.probe);
  }

 private:
  StateTensor reference_;
};

}  // namespace

std::unique_ptr<Statistic> make_probe_residual_statistic() { return std::make_unique<ProbeResidualStatistic>(); }

}  // namespace redline
