#include "diffusion/latents.h"

namespace redline {
namespace {

/// Calls body(index in the planes, index in the rows) for every element.
template <class Body>
void for_elements(const LatentLayout& l, int64_t row_channels, Body body) {
  const int64_t p = l.patch, across = l.width / p, row_size = row_channels * p * p;
  for (int64_t c = 0; c < l.channels; ++c)
    for (int64_t y = 0; y < l.height; ++y)
      for (int64_t x = 0; x < l.width; ++x) {
        const int64_t row = y / p * across + x / p, within = y % p * p + x % p;
        const int64_t column = l.channels_last ? within * row_channels + c : c * p * p + within;
        body((c * l.height + y) * l.width + x, row * row_size + column);
      }
}

}  // namespace

void pack_latents(const LatentLayout& layout, const float* planes, float* rows) {
  for_elements(layout, layout.channels, [&](int64_t plane, int64_t row) { rows[row] = planes[plane]; });
}

void unpack_latents(const LatentLayout& layout, const float* rows, int64_t row_channels, float* planes) {
  for_elements(layout, row_channels, [&](int64_t plane, int64_t row) { planes[plane] = rows[row]; });
}

std::vector<float> shrink_latents(std::span<const float> planes, const LatentLayout& layout, int64_t factor,
                                  LatentLayout& small) {
  small = layout;
  small.height = (layout.height + factor - 1) / factor;
  small.width = (layout.width + factor - 1) / factor;
  std::vector<float> means(static_cast<size_t>(small.elements()));
  for (int64_t c = 0; c < layout.channels; ++c)
    for (int64_t y = 0; y < small.height; ++y)
      for (int64_t x = 0; x < small.width; ++x) {
        const int64_t y_end = std::min(layout.height, (y + 1) * factor);
        const int64_t x_end = std::min(layout.width, (x + 1) * factor);
        float sum = 0;
        for (int64_t i = y * factor; i < y_end; ++i)
          for (int64_t k = x * factor; k < x_end; ++k)
            sum += planes[static_cast<size_t>((c * layout.height + i) * layout.width + k)];
        means[static_cast<size_t>((c * small.height + y) * small.width + x)] =
            sum / static_cast<float>((y_end - y * factor) * (x_end - x * factor));
      }
  return means;
}

}  // namespace redline
