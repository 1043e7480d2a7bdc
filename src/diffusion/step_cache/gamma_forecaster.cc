// gamma: DiCache's trajectory alignment (arXiv:2508.17356). With P the residual of the front, now and at the last two
// computed steps a, b: gamma = clip(mean |P - P_a| / mean |P_b - P_a|, 1, 1.5), forecast R_a + gamma (R_b - R_a).
#include <algorithm>

#include "diffusion/step_cache/forecaster.h"
#include "diffusion/step_cache/measures.h"

namespace redline {
namespace {

class GammaForecaster final : public Forecaster {
 public:
  int64_t depth() const override { return 2; }
  bool reads_probe() const override { return true; }
  void weights(const History& history, const ForecastPoint& at, int64_t, std::span<double> weights) override {
    weights[0] = 1;
    if (history.size() < 2) return;
    const double moved = mean_abs_difference(at.probe, history[1].probe);
    const double between = mean_abs_difference(history[0].probe, history[1].probe);
    if (between == 0) return;  // the front did not change: reuse R_b
    const double gamma = std::clamp(moved / between, 1.0, 1.5);
    weights[0] = gamma;
    weights[1] = 1 - gamma;
  }
};

}  // namespace

std::unique_ptr<Forecaster> make_gamma_forecaster() { return std::make_unique<GammaForecaster>(); }

namespace {
constexpr ForecasterRow kGammaRows[] = {
    {"gamma", "DiCache: scaled by the change of the front's residual, 1 to 1.5 of the last gap",
     make_gamma_forecaster}};
}  // namespace
extern const ForecasterRows kGammaForecasters = kGammaRows;

}  // namespace redline
