// Computes the speed of one generate() in the terms of `bench`: tokens per second of prompt and output, and the share
// of the bound (machine/roofline.h).
#pragma once

#include <optional>

#include "machine/roofline.h"

namespace redline {

struct PhaseSpeed {
  int64_t tokens = 0;
  double seconds = 0;          ///< time of the phase; 0: it did not complete
  std::optional<Bound> bound;  ///< bound of the phase; nullopt: the machine's peaks are unknown

  double tokens_per_s() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
  /// Returns the share of the roofline: the bound's time divided by the measured time.
  double share() const { return bound && seconds > 0 ? bound->seconds / seconds : 0; }
};

struct GenerationSpeed {
  PhaseSpeed prefill;  ///< the prompt
  PhaseSpeed decode;   ///< the tokens after the first, which is sampled from the prompt's logits
};

/// Returns the speeds of a result. `peaks` may be null. `exact_f32`: the engine computes with --dtype f32.
GenerationSpeed speed_of(const TextEngine& engine, const GenerateResult& result, const MachinePeaks* peaks,
                         bool exact_f32);

/// Returns the bytes that one decode step of the model reads, for PeakOptions::read_bytes.
int64_t decode_step_bytes(const TextEngine& engine);

}  // namespace redline
