// Compares step caches on a model: each setting against the uncached run and against fewer steps.
//
//   redline::lab::CompareOptions options;
//   options.model = "assets/redline-shapes";
//   options.prompts = {"a large red circle on a blue background"};
//   options.rules = {"redline:budget=10", "fbcache"};
//   options.speedups = {2.7};
//   auto report = redline::lab::compare_images(options);
#pragma once

#include <string>
#include <vector>

#include "redline/image.h"

namespace redline::lab {

struct CompareOptions {
  std::string model;                 ///< a diffusers folder
  ImageOptions engine;               ///< front_blocks and tail_blocks are set by each rule
  ImageRequest request;              ///< size, steps, guidance, seed; 0 and -1: the model's defaults
  std::vector<std::string> prompts;  ///< prompt i starts from the noise of request.seed + i
  /// Rules in the form of ImageRequest::cache. With `speedups`, a rule that sets none of threshold, interval, budget,
  /// policy and steps is tuned to each speed-up.
  std::vector<std::string> rules;
  std::vector<double> speedups;  ///< ratios above 1 of the operations of the uncached run to those of the setting
  int64_t tune_prompts = 8;      ///< number of first prompts used for tuning
  std::string lpips_weights;     ///< a safetensors file (src/lab/images/lpips.h names its tensors); "": no LPIPS
  int64_t shown_images = 6;      ///< number of prompts whose images the HTML report contains
  /// Called with the current activity and the overall progress in [0, 1]; returning false ends the comparison. If it
  /// ends early, the settings measured so far are returned, or the error if there are none.
  std::function<bool(const std::string& what, double share)> on_progress;
};

/// One setting over all prompts. Metrics compare with the uncached run of the same prompt and noise.
struct ComparedSetting {
  std::string name;                       ///< "redline:budget=10", "12 steps"
  std::string requested;                  ///< the rule that was tuned to this setting; otherwise equal to `name`
  double target_speedup = 0;              ///< 0: not tuned
  int64_t steps = 0;                      ///< steps of the solver
  double executed_share = 1;              ///< fraction of the uncached run's operations, mean over prompts
  double computed_steps = 0;              ///< mean number of steps computed at least in part
  double loop_ms = 0;                     ///< median over prompts
  std::vector<double> psnr, ssim, lpips;  ///< metrics of each prompt; lpips only if weights are given
  std::vector<std::string> png;           ///< images of the first shown_images prompts
  std::vector<std::string> warnings;
  /// Indices into CompareReport::settings of the uncached runs with fewer steps that match this setting's operations
  /// and its time; -1: none.
  int64_t fewer_by_operations = -1, fewer_by_time = -1;
};

struct CompareReport {
  std::string model, machine;
  ImageRequest request;  ///< the request with defaults filled in
  std::vector<std::string> prompts;
  double reference_loop_ms = 0;            ///< median
  std::vector<std::string> reference_png;  ///< images of the first shown_images prompts
  std::vector<ComparedSetting> settings;
  std::string stopped;  ///< where the comparison ended early, and how much was measured; "": it is complete
  Status failure;       ///< error that ended the comparison; cancelled: by on_progress

  std::string to_json() const;
  /// Returns a self-contained page: tables, plots as SVG, images as data URIs.
  std::string to_html() const;
};

/// Compares all settings. not_found, invalid_argument: a wrong model or rule (with the step cache's message), a
/// speed-up of at most 1, or no prompt.
Result<CompareReport> compare_images(const CompareOptions& options);

/// Return the mean, and a percentile (linear between ranks, as NumPy).
double mean_of(const std::vector<double>& values);
double percentile_of(std::vector<double> values, double percent);

}  // namespace redline::lab
