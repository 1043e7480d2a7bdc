// Statistics, which a rule measures on a row to decide whether its step may be skipped.
#pragma once

#include <memory>
#include <vector>

#include "diffusion/step_cache/cache_row.h"

namespace redline {

/// The parts of the network that must have run before a statistic can be measured.
enum class StatisticInput : uint8_t {
  kLatents,    ///< nothing
  kFront,      ///< the front has run
  kModulated,  ///< the front has run, and CacheRow::modulated is set
};

/// A row after its front has run. `probe`: front_image - embedded.
struct StepView {
  const CacheRow& row;
  StateView probe;
};

/// A statistic with the state of one row of one run.
class Statistic {
 public:
  virtual ~Statistic() = default;
  virtual StatisticInput reads() const = 0;
  /// Measures the statistic. Called at steps that no guard forces to be computed. Infinity: there is nothing to compare
  /// with yet.
  virtual double measure(const StepView& view) = 0;
  /// Called at every step once it is decided.
  virtual void decided(const StepView& /*view*/, bool /*computes*/) {}
  /// Called at computed steps, once model_output is available.
  virtual void computed(const CacheRow& /*row*/) {}
};

/// mean |r - r_b| / mean |r_b|, where r = front_image - embedded and r_b is r at the last computed step (FBCache,
/// DBCache).
std::unique_ptr<Statistic> make_probe_residual_statistic();
/// A polynomial of mean |m - m'| / mean |m'|, where m is the modulated input and m' that of the previous step
/// (TeaCache). Coefficients begin with the highest power.
std::unique_ptr<Statistic> make_modulated_input_statistic(std::vector<double> coefficients);
/// k mean |x - x'| / mean |v_b|, where x are the latents, x' those of the previous step, v the model output, and k =
/// mean |v_b - v_a| / mean |x_b - x_a| over the last two computed steps a and b (EasyCache).
std::unique_ptr<Statistic> make_latent_change_statistic();
/// d(front_image), or with `minus_input` |d(front_image) - d(embedded)|, where d is the relative L1 change since the
/// previous step (DiCache).
std::unique_ptr<Statistic> make_probe_state_statistic(bool minus_input);
/// |1 - product of ratios[step] over the steps since the last computed one|; ratios beyond the end are 1 (MagCache).
std::unique_ptr<Statistic> make_magnitude_statistic(std::vector<double> ratios);

/// The expected change of the output since the last computed step, extrapolated from the change measured at that step,
/// times the length of the step.
std::unique_ptr<Statistic> make_drift_statistic();

}  // namespace redline
