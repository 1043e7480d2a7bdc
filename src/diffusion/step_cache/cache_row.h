// What a pipeline hands to the step cache for one row of a batch, and gets back.
#pragma once

#include <cstdint>
#include <span>

namespace redline {

/// A step of a run as the solver sees it.
struct StepPoint {
  int64_t step = 0, steps = 0;  ///< step in [0, steps)
  /// Share of noise in the latents in [0, 1], falling over the run, now and after the step: flow time; sigma / (1 +
  /// sigma) of k-diffusion's sigma.
  double sigma = 0, next_sigma = 0;
  /// The solver adds step_size * velocity to the latents (Euler: next sigma - sigma, in the solver's sigma). 0: another
  /// kind of solver, whose step cannot take back an earlier one.
  double step_size = 0;
};

/// What is still to run for a row.
enum class CacheAction : uint8_t {
  kProbe,     ///< the probe, then StepCache::after_probe decides
  kCompute,   ///< body and head
  kSkipBody,  ///< the head alone: the cache has written the body's output
  kSkipAll,   ///< nothing: the cache has written the velocity
};

/// A row of a batch: one branch of guidance of one picture. Spans borrow from the pipeline for the length of a call;
/// their lengths stay the same over a run, another length begins the run anew.
struct CacheRow {
  uint64_t request = 0;  ///< any number that the pictures in flight do not share
  int64_t branch = 0;    ///< 0: conditional, 1: unconditional
  StepPoint at;

  std::span<const float> latents;   ///< what the network sees, in any order of elements
  std::span<float> velocity;        ///< the network's output: read when computed, written on kSkipAll
  std::span<const float> embedded;  ///< image tokens before the first block, once the probe has run
  std::span<const float> probed;    ///< image tokens after the probe's blocks
  std::span<const float> probed_text;
  std::span<const float> modulated;  ///< norm and modulation of the first block applied to `embedded`, for TeaCache
  std::span<float> body;             ///< the body's image tokens: read when computed, written on kSkipBody
  std::span<float> body_text;        ///< empty when the head does not read it

  CacheAction action = CacheAction::kProbe;  ///< set by the cache
};

}  // namespace redline
