// EasyCache's prediction (arXiv:2507.02860, H-EmbodVis/EasyCache): the relative change of the output, estimated from
// that of the latents and the last measured ratio of the two.
#include <limits>

#include "diffusion/step_cache/measures.h"
#include "diffusion/step_cache/statistic.h"

namespace redline {
namespace {

class LatentChangeStatistic final : public Statistic {
 public:
  StatisticInput reads() const override { return StatisticInput::kLatents; }
  double measure(const StepView& view) override {
    if (!has_ratio_) return std::numeric_limits<double>::infinity();
    return ratio_ * mean_abs_difference(view.row.latents, before_) / mean_abs(output_);
  }
  void decided(const StepView& view, bool) override {
    before_.assign(view.row.latents.begin(), view.row.latents.end());
  }
  void computed(const CacheRow& row) override {
    if (!output_.empty()) {
      ratio_ = mean_abs_difference(row.model_output, output_) / mean_abs_difference(row.latents, input_);
      has_ratio_ = true;
    }
    output_.assign(row.model_output.begin(), row.model_output.end());
    input_.assign(row.latents.begin(), row.latents.end());
  }

 private:
  std::vector<float> before_, input_,
      output_;  // latents of the previous step; latents and output of the last computed step
  double ratio_ = 0;
  bool has_ratio_ = false;
};

}  // namespace

std::unique_ptr<Statistic> make_latent_change_statistic() { return std::make_unique<LatentChangeStatistic>(); }

}  // namespace redline
