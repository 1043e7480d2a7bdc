// Sinusoidal embedding of diffusion timesteps.
#pragma once

#include "graph/graph.h"

namespace redline {

struct TimestepEmbeddingAttrs {
  int64_t cols = 256;         ///< even
  bool cosine_first = true;   ///< diffusers: flip_sin_to_cos
  float frequency_shift = 0;  ///< diffusers: downscale_freq_shift
  float max_period = 10000;
  float scale = 1;  ///< multiplies the timestep
};

/// Sines and cosines of a timestep (Ho et al. 2020, arXiv:2006.11239), with h = cols / 2:
///   w[k] = exp(-ln(max_period) k / (h - frequency_shift)),  y = [cos(scale t w), sin(scale t w)] or with sines first
///
/// timestep  [n]        f32
/// returns   [n, cols]  f32
Value timestep_embedding(GraphBuilder& g, Value timestep, TimestepEmbeddingAttrs attrs);

extern const OpDef kTimestepEmbedding;

}  // namespace redline
