// reuse: the last stored tensor, as in FBCache, TeaCache, EasyCache and MagCache. First-order accurate in the gap.
#include "diffusion/step_cache/forecaster.h"

namespace redline {
namespace {

class ReuseForecaster final : public Forecaster {
 public:
  int64_t depth() const override { return 1; }
  void weights(const History&, const ForecastPoint&, int64_t, std::span<double> weights) override { weights[0] = 1; }
};

}  // namespace

std::unique_ptr<Forecaster> make_reuse_forecaster() { return std::make_unique<ReuseForecaster>(); }

namespace {
constexpr ForecasterRow kReuseRows[] = {{"reuse", "the last computed value", make_reuse_forecaster}};
}  // namespace
extern const ForecasterRows kReuseForecasters = kReuseRows;

}  // namespace redline
