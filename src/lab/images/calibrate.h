// Calibrates a step cache: searches masks of steps to compute for one model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "redline/image.h"

namespace redline::lab {

struct CalibrateOptions {
  std::string model;                 ///< a diffusers folder
  ImageOptions engine;               ///< the options that images will be generated with
  ImageRequest request;              ///< size, steps, guidance, seed; zeros and -1: the model's defaults
  std::vector<std::string> prompts;  ///< prompt i starts from the noise of request.seed + i; four to sixteen are enough
  std::vector<int64_t> budgets;      ///< computed steps, one mask each; empty: 1/4, 3/8, 1/2 of the steps
  int64_t evaluations = 120;         ///< maximum number of masks tried on the pipeline per budget
  /// Current activity and overall progress in [0, 1]; returning false stops with Code::cancelled.
  std::function<bool(const std::string& what, double share)> on_progress;
};

/// Figures are the mean PSNR in dB against the uncached run, over the prompts.
struct CalibratedBudget {
  std::vector<int64_t> computed;  ///< steps in increasing order
  double power_db = 0;            ///< of the power-law mask, which needs no calibration
  double planned_db = 0;          ///< of the mask planned from recorded trajectories
  double found_db = 0;
  int64_t evaluations = 0;
};

struct CalibrateReport {
  ImageRequest request;  ///< as it was run
  int64_t prompts = 0;
  std::vector<CalibratedBudget> budgets;
  Status failure;  ///< what stopped it after some budgets: on_progress (cancelled), or an error
};

/// Budgets that were found before an error are returned with it (CalibrateReport::failure).
/// unsupported: the solver is not an Euler step; the plan relies on sums of velocities.
/// invalid_argument: no prompt, a budget outside 2 .. steps - 1.
Result<CalibrateReport> calibrate_images(const CalibrateOptions& options);

/// The file in which an engine looks for the masks of `model`, a folder: step_cache.json in it.
std::string calibration_path(const std::string& model);
/// Adds the masks to a calibration file (src/diffusion/calibration_file.h) and replaces those of the same steps and
/// budget. Errors as check_calibration; io.
Status write_calibration(const std::string& path, const CalibrateReport& report);
/// Whether write_calibration may write there. invalid_argument: an existing file is not a calibration; io: the folder
/// is not writable.
Status check_calibration(const std::string& path);

}  // namespace redline::lab
