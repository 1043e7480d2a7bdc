// TeaCache's signal (ali-vilab/TeaCache): the change of the first block's modulated input since the previous step,
// mapped by a polynomial that was fitted to the resulting change of the output.
#include <limits>

#include "diffusion/step_cache/measures.h"
#include "diffusion/step_cache/statistic.h"

namespace redline {
namespace {

class ModulatedInputStatistic final : public Statistic {
 public:
  explicit ModulatedInputStatistic(std::vector<double> coefficients) : coefficients_(std::move(coefficients)) {}
  StatisticInput reads() const override { return StatisticInput::kModulated; }
  double measure(const StepView& view) override {
    if (before_.empty()) return std::numeric_limits<double>::infinity();
    const double change = relative_l1(view.row.modulated, before_);
    double value = 0;
    for (const double c : coefficients_) value = value * change + c;
    return value;
  }
  void decided(const StepView& view, bool) override { before_.assign(view.row.modulated); }

 private:
  std::vector<double> coefficients_;
  StateTensor before_;
};

}  // namespace

std::unique_ptr<Statistic> make_modulated_input_statistic(std::vector<double> coefficients) {
  return std::make_unique<ModulatedInputStatistic>(std::move(coefficients));
}

}  // namespace redline
