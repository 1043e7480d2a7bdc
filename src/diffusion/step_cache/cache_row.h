// One row of a batch as the pipeline passes it to the step cache.
#pragma once

#include <cstdint>
#include <span>

#include "diffusion/step_cache/state_tensor.h"

namespace redline {

/// A step of a run.
struct StepPoint {
  int64_t step = 0, steps = 0;  ///< step in [0, steps)
  /// Share of noise in the latents in [0, 1], decreasing over the run, before and after the step: flow time, or
  /// sigma / (1 + sigma) of k-diffusion's sigma.
  double sigma = 0, next_sigma = 0;
  /// The solver adds step_size * model_output to the latents; for Euler it is next sigma - sigma, in the solver's
  /// sigma. 0: another kind of solver, for which forecast errors cannot be corrected.
  double step_size = 0;
};

/// The part of the network that still has to run for a row.
enum class CacheAction : uint8_t {
  kRunFront,    ///< run the front; then StepCache::after_front() decides
  kCompute,     ///< run middle and tail
  kSkipMiddle,  ///< run the tail only: the cache has written the output of the middle
  kSkipAll,     ///< run nothing: the cache has written the model output
};

/// A row of a batch: one guidance branch of one image. Spans and views refer to memory of the pipeline and are used
/// during the call only. Their lengths are constant over a run; another length resets the row's state.
struct CacheRow {
  uint64_t request = 0;  ///< unique among the images in flight
  int64_t branch = 0;    ///< 0: conditional, 1: unconditional
  StepPoint at;

  std::span<const float> latents;  ///< the network's input, in any order of elements
  std::span<float> model_output;   ///< read when computed, written on kSkipAll
  StateView embedded;              ///< image tokens before the first block; set when the front has run
  StateView front_image;           ///< image tokens after the front's blocks
  StateView front_text;
  StateView modulated;     ///< norm and modulation of the first block applied to `embedded`, for TeaCache
  StateView middle_image;  ///< image tokens after the middle: read when computed, written on kSkipMiddle
  StateView middle_text;   ///< empty when the tail does not read it

  CacheAction action = CacheAction::kRunFront;  ///< set by the cache
};

}  // namespace redline
