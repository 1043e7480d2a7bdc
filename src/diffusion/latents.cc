#include "diffusion/latents.h"

namespace redline {
namespace {

/// Calls body(index in the planes, index in the rows) for every element. A row has `row_channels` channels.
template <class Body>
void for_elements(const LatentShape& s, int64_t row_channels, Body body) {
  const int64_t p = s.patch, across = s.width / p, row_size = row_channels * p * p;
  const int64_t lines = s.frames * s.height;  // a frame is a whole number of tokens high
  for (int64_t c = 0; c < s.channels; ++c)
    for (int64_t y = 0; y < lines; ++y)
      for (int64_t x = 0; x < s.width; ++x) {
        const int64_t row = y / p * across + x / p, within = y % p * p + x % p;
        body((c * lines + y) * s.width + x, row * row_size + c * p * p + within);
      }
}

}  // namespace

std::vector<int64_t> LatentShape::planes(int64_t images, bool has_frames) const {
  if (has_frames) return {images, channels, frames, height, width};
  return {images, channels, height, width};
}

void set_extents(const Grid& grid, const LatentShape& shape, SymbolValues& values) {
  const int64_t sizes[] = {shape.frames, shape.height, shape.width};
  REDLINE_CHECK(grid.num_axes() == 0 || grid.num_axes() == 2 || grid.num_axes() == 3);
  grid.set(values, std::span(sizes).last(grid.num_axes()));
}

void pack_latents(const LatentShape& shape, const float* planes, float* rows) {
  for_elements(shape, shape.channels, [&](int64_t plane, int64_t row) { rows[row] = planes[plane]; });
}

void unpack_latents(const LatentShape& shape, const float* rows, int64_t row_channels, float* planes) {
  for_elements(shape, row_channels, [&](int64_t plane, int64_t row) { planes[plane] = rows[row]; });
}

void take_output_rows(const LatentShape& shape, const float* from, int64_t row_channels, bool channels_last,
                      float* to) {
  const int64_t square = shape.patch * shape.patch, columns = shape.columns();
  for (int64_t token = 0; token < shape.tokens(); ++token, from += row_channels * square, to += columns) {
    if (!channels_last) {
      std::copy_n(from, columns, to);
      continue;
    }
    for (int64_t c = 0; c < shape.channels; ++c)
      for (int64_t i = 0; i < square; ++i) to[c * square + i] = from[i * row_channels + c];
  }
}

std::vector<float> packed_images(const LatentShape& shape, std::span<const float> planes) {
  std::vector<float> rows(planes.size());
  for (size_t at = 0; at < planes.size(); at += static_cast<size_t>(shape.elements()))
    pack_latents(shape, planes.data() + at, rows.data() + at);
  return rows;
}

std::vector<float> unpacked_images(const LatentShape& shape, std::span<const float> rows) {
  std::vector<float> planes(rows.size());
  for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(shape.elements()))
    unpack_latents(shape, rows.data() + at, shape.channels, planes.data() + at);
  return planes;
}

void RowNoise::draw(std::span<float> out) {
  drawn_.resize(out.size());
  planes_.draw(drawn_);
  for (size_t at = 0; at < out.size(); at += static_cast<size_t>(shape_.elements()))
    pack_latents(shape_, drawn_.data() + at, out.data() + at);
}

std::vector<float> shrink_latents(std::span<const float> planes, const LatentShape& shape, int64_t factor,
                                  LatentShape& small) {
  small = shape;
  small.frames = 1;
  small.height = (shape.height + factor - 1) / factor;
  small.width = (shape.width + factor - 1) / factor;
  std::vector<float> means(static_cast<size_t>(small.elements()));
  for (int64_t c = 0; c < shape.channels; ++c)
    for (int64_t y = 0; y < small.height; ++y)
      for (int64_t x = 0; x < small.width; ++x) {
        const int64_t y_end = std::min(shape.height, (y + 1) * factor);
        const int64_t x_end = std::min(shape.width, (x + 1) * factor);
        float sum = 0;
        for (int64_t i = y * factor; i < y_end; ++i)
          for (int64_t k = x * factor; k < x_end; ++k)
            sum += planes[static_cast<size_t>((c * shape.frames * shape.height + i) * shape.width + k)];
        means[static_cast<size_t>((c * small.height + y) * small.width + x)] =
            sum / static_cast<float>((y_end - y * factor) * (x_end - x * factor));
      }
  return means;
}

}  // namespace redline
