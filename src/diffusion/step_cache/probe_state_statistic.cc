// DiCache's online probe (arXiv:2508.17356): the change of the state after the first blocks since the previous step,
// optionally minus the change of the input.
#include <limits>

#include "diffusion/step_cache/measures.h"
#include "diffusion/step_cache/statistic.h"

namespace redline {
namespace {

class ProbeStateStatistic final : public Statistic {
 public:
  explicit ProbeStateStatistic(bool minus_input) : minus_input_(minus_input) {}
  StatisticInput reads() const override { return StatisticInput::kFront; }
  double measure(const StepView& view) override {
    if (state_.empty()) return std::numeric_limits<double>::infinity();
    const double change = relative_l1(view.row.front_image, state_);
    return minus_input_ ? std::fabs(change - relative_l1(view.row.embedded, input_)) : change;
  }
  void decided(const StepView& view, bool) override {
    state_.assign(view.row.front_image);
    if (minus_input_) input_.assign(view.row.embedded);
  }

 private:
  bool minus_input_;
  StateTensor state_, input_;
};

}  // namespace

std::unique_ptr<Statistic> make_probe_state_statistic(bool minus_input) {
  return std::make_unique<ProbeStateStatistic>(minus_input);
}

}  // namespace redline
