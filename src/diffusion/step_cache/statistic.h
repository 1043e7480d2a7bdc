// Statistics: what a rule measures of a row to decide whether its step may be skipped.
#pragma once

#include <memory>
#include <vector>

#include "diffusion/step_cache/cache_row.h"

namespace redline {

/// What must have run before a statistic can be taken.
enum class StatisticInput : uint8_t {
  kLatents,    ///< nothing
  kFront,      ///< the front
  kModulated,  ///< the front, and CacheRow::modulated is given
};

/// A row after its front has run. `probe`: front_image - embedded.
struct StepView {
  const CacheRow& row;
  StateView probe;
};

/// State of one row of one run.
class Statistic {
 public:
  virtual ~Statistic() = default;
  virtual StatisticInput reads() const = 0;
  /// Called at steps that no guard forces to be computed. Infinity: there is nothing to compare with yet.
  virtual double measure(const StepView& view) = 0;
  /// Called at every step once it is decided.
  virtual void decided(const StepView& /*view*/, bool /*computes*/) {}
  /// Called at computed steps, once model_output is available.
  virtual void computed(const CacheRow& /*row*/) {}
};

/// mean |r - r_b| / mean |r_b| with r = front_image - embedded and r_b that of the last computed step (FBCache,
/// DBCache).
std::unique_ptr<Statistic> make_probe_residual_statistic();
/// Polynomial of mean |m - m'| / mean |m'|, m the modulated input, m' that of the previous step (TeaCache).
/// Coefficients from the highest power.
std::unique_ptr<Statistic> make_modulated_input_statistic(std::vector<double> coefficients);
/// k mean |x - x'| / mean |v_b|, x the latents, x' those of the previous step, k = mean |v_b - v_a| / mean |x_b - x_a|
/// over the last two computed steps (EasyCache).
std::unique_ptr<Statistic> make_latent_change_statistic();
/// d(front_image), or with `minus_input` |d(front_image) - d(embedded)|, d the relative L1 change since the previous
/// step (DiCache).
std::unique_ptr<Statistic> make_probe_state_statistic(bool minus_input);
/// |1 - product of ratios since the last computed step|; ratios[step], 1 beyond the end (MagCache).
std::unique_ptr<Statistic> make_magnitude_statistic(std::vector<double> ratios);

/// The output's expected change since the last computed step, extrapolated from the change measured there, times the
/// length of the step.
std::unique_ptr<Statistic> make_drift_statistic();

}  // namespace redline
