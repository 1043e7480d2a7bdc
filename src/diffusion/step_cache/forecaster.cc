#include "diffusion/step_cache/forecaster.h"

#include <fmt/ranges.h>

#include "base/text_distance.h"

namespace redline {
namespace {

constexpr ForecasterInfo kForecasters[] = {
    {"reuse", "the last computed value", make_reuse_forecaster},
    {"taylor1", "Taylor series by step number, first order", [] { return make_taylor_forecaster(1); }},
    {"taylor2", "Taylor series by step number, second order", [] { return make_taylor_forecaster(2); }},
    {"taylor3", "Taylor series by step number, third order", [] { return make_taylor_forecaster(3); }},
    {"sigma1", "straight line in sigma", [] { return make_sigma_forecaster(1); }},
    {"sigma2", "parabola in sigma", [] { return make_sigma_forecaster(2); }},
    {"gamma", "DiCache: scaled by the change of the front's residual, 1 to 1.5 of the last gap", make_gamma_forecaster},
    {"probe", "scaled by the front's residual projected on its last direction", make_probe_horizon_forecaster},
    {"foca", "mean of two slopes, corrected by the last forecast", make_foca_forecaster},
    {"dmd", "dynamic modes of the last 4 to 6 equally spaced values", make_dmd_forecaster},
    {"measured", "linear in u(sigma), damped by the previous forecast's error", make_measured_forecaster},
};

}  // namespace

std::span<const ForecasterInfo> forecasters() { return kForecasters; }

Result<const ForecasterInfo*> find_forecaster(const std::string& name) {
  std::vector<std::string_view> names;
  for (const ForecasterInfo& info : kForecasters) {
    if (name == info.name) return &info;
    names.emplace_back(info.name);
  }
  return not_found("no forecaster is called \"{}\"{}; there are {}", name, the_nearest(name, names),
                   fmt::join(names, ", "));
}

}  // namespace redline
