// Parts of noise schedules that several solvers use: the training schedule, timestep spacing, sigma curves.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "diffusion/solver_fields.h"

namespace redline {

/// The noise schedule of the training: cumulative products of 1 - beta over the training timesteps, in float32 as in
/// diffusers.
class TrainingSchedule {
 public:
  TrainingSchedule() = default;
  /// Reads num_train_timesteps, beta_start, beta_end, beta_schedule and trained_betas. `rescales`: the class has
  /// rescale_betas_zero_snr (Lin et al. 2023, arXiv:2305.08891, algorithm 1). `keeps_signal`: the class leaves a small
  /// share of signal at the last timestep, so that no sigma is infinite.
  TrainingSchedule(SolverFields& fields, bool rescales, bool keeps_signal, double beta_start = 0.0001,
                   double beta_end = 0.02, const char* beta_schedule = "linear");

  int64_t size() const { return static_cast<int64_t>(alphas_.size()); }
  /// Returns the share of the signal's variance left at timestep t.
  float alpha(int64_t t) const { return alphas_[static_cast<size_t>(t)]; }
  /// Returns sqrt((1 - alpha) / alpha) at every timestep, increasing.
  const std::vector<float>& sigmas() const { return sigmas_; }
  /// Returns sigma at t, interpolated linearly between timesteps.
  double sigma_at(double t) const;
  /// Returns the fractional timestep with this sigma, interpolated linearly in log sigma.
  double timestep_of(double sigma) const;
  /// Checks timesteps. invalid_argument: a timestep below 0 or not below size().
  Status expect_within(std::span<const float> timesteps) const;

 private:
  std::vector<float> alphas_, sigmas_, log_sigmas_;
};

/// timestep_spacing: chooses the training timesteps that a run visits.
struct Spacing {
  std::string kind;
  int64_t offset = 0;
  Spacing() = default;
  /// Reads timestep_spacing and steps_offset.
  Spacing(SolverFields& fields, const char* fallback);
  /// Returns the timesteps of a run of `steps`, decreasing. `all`: the number of training timesteps, of which the first
  /// `range` are used. `extra` 1: the range is divided into steps + 1 points, of which the lowest is not visited
  /// (linspace, leading). The results are whole numbers, except for linspace without `rounds`.
  std::vector<double> timesteps(int steps, int64_t range, int64_t all, int extra, bool rounds) const;
};

/// A curve of sigmas: that of Karras et al. 2022 (arXiv:2206.00364) with rho 7, an exponential one, or quantiles of the
/// beta distribution (0.6, 0.6) (arXiv:2407.12173). At most one of use_karras_sigmas, use_exponential_sigmas and
/// use_beta_sigmas may be set.
struct SigmaCurve {
  enum Kind { kNone, kKarras, kExponential, kBeta } kind = kNone;
  std::optional<double> min, max;
  SigmaCurve() = default;
  /// `bounded`: the class has sigma_min and sigma_max.
  SigmaCurve(SolverFields& fields, bool bounded);
  explicit operator bool() const { return kind != kNone; }
  /// Returns `steps` values from `high` down to `low`, or from `max` down to `min` if these are set.
  std::vector<double> sigmas(double high, double low, int steps) const;
};

/// The shift mu as a function of the image size: the line through (base_image_seq_len, base_shift) and
/// (max_image_seq_len, max_shift).
struct DynamicShift {
  bool enabled = false;
  bool is_linear = false;
  double base_tokens = 256, max_tokens = 4096, base_shift = 0.5, max_shift = 1.15;
  DynamicShift() = default;
  explicit DynamicShift(SolverFields& fields);
  /// Returns mu for a number of image tokens. invalid_argument: the number is unknown.
  Result<double> mu(int64_t image_tokens) const;
};

/// Returns numpy.linspace(first, last, count).
std::vector<double> linspace(double first, double last, int64_t count);
/// Returns the quantile p of the symmetric beta distribution, the x with I_x(a, a) = p, to within 1e-14.
double beta_quantile(double p, double a);

}  // namespace redline
