// The shape of latents, and the conversion between the generator's order (channel planes) and the network's (rows of
// tokens or pixels).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "diffusion/noise_source.h"
#include "tensor/grid.h"

namespace redline {

/// The shape of the latents of one image or clip. In channel planes they are [channels, frames, height, width], as in
/// diffusers; an image has one frame. In rows they are [tokens, columns], as a network reads them: a token is a
/// patch x patch square of one frame, and its columns are [channels, patch, patch].
struct LatentShape {
  int64_t channels = 0, height = 0, width = 0;  ///< height and width are multiples of patch
  int64_t patch = 1;                            ///< side of a token; 1: a row for each pixel of the latents
  int64_t frames = 1;

  int64_t pixels() const { return frames * height * width; }
  int64_t elements() const { return channels * pixels(); }
  /// Returns the shape of `images` items in planes: [images, channels, height, width], with frames before the height if
  /// `has_frames`.
  std::vector<int64_t> planes(int64_t images, bool has_frames) const;
  int64_t tokens() const { return pixels() / (patch * patch); }
  int64_t columns() const { return channels * patch * patch; }
  friend bool operator==(const LatentShape&, const LatentShape&) = default;
};

/// Sets the extents of a network's grid to the sizes of the latents. A grid of two axes has height and width, one of
/// three axes has the frames before them; a network without feature maps has none.
void set_extents(const Grid& grid, const LatentShape& shape, SymbolValues& values);

/// Converts planes to rows.
void pack_latents(const LatentShape& shape, const float* planes, float* rows);
/// Converts rows to planes. A row has `row_channels` channels, of which the first shape.channels are read.
void unpack_latents(const LatentShape& shape, const float* rows, int64_t row_channels, float* planes);
/// Converts the rows of a network's output to the order of LatentShape. A token of `from` has `row_channels` channels,
/// of which the first shape.channels are read; its columns are [patch, patch, row_channels] with `channels_last`, else
/// [row_channels, patch, patch].
void take_output_rows(const LatentShape& shape, const float* from, int64_t row_channels, bool channels_last, float* to);

/// Returns [images, planes] as [images, rows]; empty if `planes` is empty.
std::vector<float> packed_images(const LatentShape& shape, std::span<const float> planes);
/// Returns [images, rows] as [images, planes].
std::vector<float> unpacked_images(const LatentShape& shape, std::span<const float> rows);

/// Noise in rows, drawn by a generator in the order of planes: a seed gives the same noise in both orders.
class RowNoise final : public NoiseSource {
 public:
  /// `planes` must outlive this source.
  RowNoise(const LatentShape& shape, NoiseSource& planes) : shape_(shape), planes_(planes) {}
  /// `out`: [images, rows].
  void draw(std::span<float> out) override;

 private:
  LatentShape shape_;
  NoiseSource& planes_;
  std::vector<float> drawn_;
};

/// Returns the means of factor x factor squares of the first frame of `planes`. Squares at the right and lower edge are
/// cut off there. `small` receives the shape of the result.
std::vector<float> shrink_latents(std::span<const float> planes, const LatentShape& shape, int64_t factor,
                                  LatentShape& small);

/// Returns false if a value is infinite or NaN.
inline bool all_finite(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace redline
