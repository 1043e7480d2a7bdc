// A denoiser with a step cache: runs the parts that the cache does not forecast, and counts operations.
#pragma once

#include "diffusion/denoiser.h"
#include "diffusion/solver.h"
#include "diffusion/step_cache.h"

namespace redline {

/// Executes one run, from Denoiser::begin to the last step. Rows are those of the denoiser's batch. Each image is a
/// request of the step cache, and each guidance branch is a branch of it.
class CachedDenoiser {
 public:
  /// `denoiser` must outlive this object, was built with `blocks` and has begun its batch.
  /// unsupported: the rule skips a part, but the network is not divided into parts. invalid_argument: the rule needs
  /// another number of blocks in the front or the tail.
  static Result<CachedDenoiser> make(Denoiser& denoiser, StepCache cache, BlockSplit blocks);

  /// Denoiser::evaluate() for the step `at`. Branches of a step may come in several calls, the conditional one first.
  Status evaluate(std::span<const int64_t> rows, std::span<const float> x, double timestep, const StepPoint& at,
                  std::span<float> out);

  const StepCache& cache() const { return cache_; }
  /// Returns the number of images with a row that was computed, not forecast, in the step of the last evaluate().
  int64_t computed_images() const;
  /// Returns the floating-point operations of the matrix products that were executed.
  double executed_operations() const { return executed_flops_; }
  /// Returns the executed operations relative to those of the same calls without a step cache.
  double executed_share() const { return full_flops_ > 0 ? executed_flops_ / full_flops_ : 1; }
  /// Returns warnings for the user: settings of the rule that do not suit this network.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  CachedDenoiser(Denoiser& denoiser, StepCache cache) : denoiser_(&denoiser), cache_(std::move(cache)) {}
  void set_views(CacheRow& row, int64_t index) const;
  void count(size_t part, size_t rows);

  Denoiser* denoiser_;
  StepCache cache_;
  int64_t step_ = -1;
  std::vector<bool> computed_;  ///< by image: a row was computed at step_
  double executed_flops_ = 0, full_flops_ = 0;
  std::vector<std::string> warnings_;
};

/// Returns step `index` of a run of `solver` in the form that the step cache needs.
StepPoint step_point(const Solver& solver, int64_t index);

}  // namespace redline
