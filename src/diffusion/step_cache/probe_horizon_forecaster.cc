// probe: R_b + beta (R_b - R_a), where beta is the progress of the front's residual along the line from P_a to P_b:
// beta = <P - P_b, P_b - P_a> / |P_b - P_a|^2, clipped to [0, 2]. DiCache's gamma - 1 is the length of the change,
// whatever its direction; the projection ignores changes of direction.
#include <algorithm>

#include "diffusion/step_cache/forecaster.h"
#include "diffusion/step_cache/measures.h"

namespace redline {
namespace {

class ProbeHorizonForecaster final : public Forecaster {
 public:
  int64_t depth() const override { return 2; }
  bool reads_probe() const override { return true; }
  void weights(const History& history, const ForecastPoint& at, int64_t, std::span<double> weights) override {
    weights[0] = 1;
    if (history.size() < 2) return;
    const auto &a = history[1].probe, &b = history[0].probe;
    const double along = product_of_changes(at.probe, b, b, a), length = product_of_changes(b, a, b, a);
    if (length == 0) return;
    const double beta = std::clamp(along / length, 0.0, 2.0);
    weights[0] = 1 + beta;
    weights[1] = -beta;
  }
};

}  // namespace

std::unique_ptr<Forecaster> make_probe_horizon_forecaster() { return std::make_unique<ProbeHorizonForecaster>(); }

namespace {
constexpr ForecasterRow kProbeHorizonRows[] = {
    {"probe", "scaled by the front's residual projected on its last direction", make_probe_horizon_forecaster}};
}  // namespace
extern const ForecasterRows kProbeHorizonForecasters = kProbeHorizonRows;

}  // namespace redline
