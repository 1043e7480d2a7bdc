// Calibrates a step cache: searches for the best masks of computed steps for one model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "redline/image.h"

namespace redline::lab {

struct CalibrateOptions {
  std::string model;                 ///< a diffusers folder
  ImageOptions engine;               ///< the options with which images will be generated
  ImageRequest request;              ///< size, steps, guidance, seed; 0 and -1: the model's defaults
  std::vector<std::string> prompts;  ///< prompt i starts from the noise of request.seed + i; four to sixteen are enough
  std::vector<int64_t> budgets;  ///< numbers of computed steps, one mask for each; empty: 1/4, 3/8, 1/2 of the steps
  int64_t evaluations = 120;     ///< maximum number of masks tried on the pipeline per budget
  /// Called with the current activity and the overall progress in [0, 1]. Returning false ends the call as `cancelled`.
  std::function<bool(const std::string& what, double share)> on_progress;
};

/// The mask found for one budget. Figures are the mean PSNR in dB against the uncached run, over the prompts.
struct CalibratedBudget {
  std::vector<int64_t> computed;  ///< steps in increasing order
  double power_db = 0;            ///< PSNR of the power-law mask, which needs no calibration
  double planned_db = 0;          ///< PSNR of the mask planned from recorded trajectories
  double found_db = 0;
  int64_t evaluations = 0;
};

struct CalibrateReport {
  ImageRequest request;  ///< the request with defaults filled in
  int64_t prompts = 0;
  std::vector<CalibratedBudget> budgets;
  Status failure;  ///< error that ended the search after some budgets; cancelled: by on_progress
};

/// Searches a mask for each budget. After an error, the report has the budgets found before it, and the error
/// (CalibrateReport::failure).
/// unsupported: the solver does not make Euler steps; the plan relies on sums of velocities.
/// invalid_argument: no prompt, a budget outside 2 .. steps - 1.
Result<CalibrateReport> calibrate_images(const CalibrateOptions& options);

/// Returns the path from which an engine reads the masks of a model's folder: step_cache.json in it.
std::string calibration_path(const std::string& model);
/// Adds the masks to a calibration file (src/diffusion/calibration_file.h) and replaces those with the same steps and
/// budget. Errors: those of check_calibration(); io.
Status write_calibration(const std::string& path, const CalibrateReport& report);
/// Checks that write_calibration() may write there. invalid_argument: an existing file is not a calibration; io: the
/// folder is not writable.
Status check_calibration(const std::string& path);

}  // namespace redline::lab
