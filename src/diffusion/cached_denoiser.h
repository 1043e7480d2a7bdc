// A denoiser with a step cache: runs what the cache does not forecast, and counts operations.
#pragma once

#include "diffusion/denoiser.h"
#include "diffusion/solver.h"
#include "diffusion/step_cache.h"

namespace redline {

/// One run: from Denoiser::begin to the last step. Rows are those of the denoiser's batch; each image is a request of
/// the cache, each guidance branch a branch.
class CachedDenoiser {
 public:
  /// `denoiser` outlives this, was built with `blocks` and has begun its batch.
  /// unsupported: the rule skips a part of a network that is not divided into parts. invalid_argument: it needs another
  /// number of blocks in the front or the tail.
  static Result<CachedDenoiser> make(Denoiser& denoiser, StepCache cache, BlockSplit blocks);

  /// As Denoiser::evaluate, at `at`. Branches of a step may come in several calls, the conditional one first.
  Status evaluate(std::span<const int64_t> rows, std::span<const float> x, double timestep, const StepPoint& at,
                  std::span<float> out);

  const StepCache& cache() const { return cache_; }
  /// Number of images with a row that was computed, not forecast, at the step of the last evaluate().
  int64_t computed_images() const;
  /// Floating-point operations of the matrix products that were executed.
  double executed_operations() const { return executed_flops_; }
  /// The same, relative to the same calls without a cache.
  double executed_share() const { return full_flops_ > 0 ? executed_flops_ / full_flops_ : 1; }
  /// For the user: settings of the rule that do not suit this network.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  CachedDenoiser(Denoiser& denoiser, StepCache cache) : denoiser_(&denoiser), cache_(std::move(cache)) {}
  void set_views(CacheRow& row, int64_t index) const;
  void count(size_t part, size_t rows);

  Denoiser* denoiser_;
  StepCache cache_;
  int64_t step_ = -1;
  std::vector<bool> computed_;  ///< by image, at step_
  double executed_flops_ = 0, full_flops_ = 0;
  std::vector<std::string> warnings_;
};

/// Step `index` of a run of `solver`, for a step cache.
StepPoint step_point(const Solver& solver, int64_t index);

}  // namespace redline
