// foca: forecast, then calibrate (FoCa, arXiv:2508.16211), with slopes per step.
//
// The forecast extends the last computed value R_b by the mean of two slopes: the anchor slope between the last two
// computed values, and the local slope between the last two values of any kind, where the older one may be the last
// forecast before b. A forecast that missed b thus corrects the next one. The published code does not divide the
// differences by their gaps and needs a clamp for stability; slopes per step need none. Within a gap the local slope is
// updated at each step; the recursion is tracked as weights of the stored values.
#include <algorithm>

#include "diffusion/step_cache/forecaster.h"

namespace redline {
namespace {

class FocaForecaster final : public Forecaster {
 public:
  int64_t depth() const override { return 2; }
  bool reads_own_forecast() const override { return true; }
  void weights(const History& history, const ForecastPoint& at, int64_t own, std::span<double> weights) override {
    weights[0] = 1;
    if (history.size() < 2) return;
    using Line = std::vector<double>;  // weights of history[0], history[1] and the own forecast
    const Line b = {1, 0, 0}, a = {0, 1, 0};
    const auto slope = [](const Line& to, const Line& from, double gap) {
      Line line(3);
      for (int i = 0; i < 3; ++i) line[i] = (to[i] - from[i]) / gap;
      return line;
    };
    const int64_t base = history[0].step;
    const Line anchor = slope(b, a, static_cast<double>(base - history[1].step));
    Line local = anchor, last = b;
    if (own > history[1].step && own < base) local = slope(b, {0, 0, 1}, static_cast<double>(base - own));
    for (int64_t step = base + 1; step <= at.step; ++step) {
      const double gap = static_cast<double>(step - base);
      Line next(3);
      for (int i = 0; i < 3; ++i) next[i] = b[i] + gap / 2 * (anchor[i] + local[i]);
      local = slope(next, last, 1.0);
      last = std::move(next);
    }
    weights[0] = last[0];
    weights[1] = last[1];
    weights[2] = last[2];
  }
};

}  // namespace

std::unique_ptr<Forecaster> make_foca_forecaster() { return std::make_unique<FocaForecaster>(); }

namespace {
constexpr ForecasterRow kFocaRows[] = {
    {"foca", "mean of two slopes, corrected by the last forecast", make_foca_forecaster}};
}  // namespace
extern const ForecasterRows kFocaForecasters = kFocaRows;

}  // namespace redline
