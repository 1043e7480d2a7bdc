// Converts latents between the solver's layout (channel planes) and the network's (rows of tokens or pixels).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace redline {

/// The network's layout of latents. A token is a patch x patch square of the latent; its columns are [channels, patch,
/// patch], or [patch, patch, channels] with `channels_last`. patch 1: one row for each pixel.
struct LatentLayout {
  int64_t channels = 0, height = 0, width = 0;  ///< height and width are multiples of patch
  int64_t patch = 1;
  bool channels_last = false;

  int64_t elements() const { return channels * height * width; }
};

/// Converts planes [channels, height, width] to rows [height / patch * width / patch, channels * patch * patch].
void pack_latents(const LatentLayout& layout, const float* planes, float* rows);
/// Does the inverse of pack_latents(). Rows have `row_channels` channels, of which the first layout.channels are read.
void unpack_latents(const LatentLayout& layout, const float* rows, int64_t row_channels, float* planes);

/// Returns the means of factor x factor squares of `planes`; at the right and lower edge, of the part inside the plane.
/// `small` receives the layout of the result.
std::vector<float> shrink_latents(std::span<const float> planes, const LatentLayout& layout, int64_t factor,
                                  LatentLayout& small);

/// Returns false if a value is infinite or NaN.
inline bool all_finite(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace redline
