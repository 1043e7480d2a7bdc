#include "diffusion/vae_tiles.h"

#include <algorithm>

namespace redline {

std::vector<int64_t> tile_starts(int64_t length, int64_t tile, int64_t overlap) {
  if (tile >= length) return {0};
  const int64_t step = std::max<int64_t>(tile - overlap, 1), count = (length - tile + step - 1) / step + 1;
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < count; ++i) starts.push_back((length - tile) * i / (count - 1));
  return starts;
}

namespace {

// Returns the blending weights of tile `i` along one axis: they increase over the overlap with the previous tile and
// decrease over the overlap with the next.
std::vector<float> ramps(const std::vector<int64_t>& starts, size_t i, int64_t tile, int64_t scale) {
  std::vector<float> weights(static_cast<size_t>(tile * scale), 1.0f);
  const auto n = static_cast<int64_t>(weights.size());
  const int64_t before = i > 0 ? (starts[i - 1] + tile - starts[i]) * scale : 0;
  const int64_t after = i + 1 < starts.size() ? (starts[i] + tile - starts[i + 1]) * scale : 0;
  for (int64_t t = 0; t < n; ++t) {
    float& w = weights[static_cast<size_t>(t)];
    if (t < before) w *= (static_cast<float>(t) + 0.5f) / static_cast<float>(before);
    if (n - 1 - t < after) w *= (static_cast<float>(n - 1 - t) + 0.5f) / static_cast<float>(after);
  }
  return weights;
}

}  // namespace

Status decode_in_tiles(Executable& decode, const AutoencoderModel& model, const LatentShape& shape,
                       std::span<const float> z, int64_t tile, std::vector<float>& rgb) {
  const int64_t scale = model.scale, frames = model.decoded_frames(shape.frames);
  const int64_t tile_height = std::min(tile, shape.height), tile_width = std::min(tile, shape.width);
  const std::vector<int64_t> rows = tile_starts(shape.height, tile_height, tile_height / 4),
                             columns = tile_starts(shape.width, tile_width, tile_width / 4);
  LatentShape part = shape;
  part.patch = 1;
  part.height = tile_height;
  part.width = tile_width;
  SymbolValues sizes;
  sizes[Symbol::kBatch] = 1;
  set_extents(model.grid, part, sizes);
  const int64_t height = shape.height * scale, width = shape.width * scale;
  rgb.assign(static_cast<size_t>(frames * height * width * 3), 0.0f);
  std::vector<float> weights(static_cast<size_t>(height * width), 0.0f);
  std::vector<float> cut(static_cast<size_t>(part.elements()));
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t j = 0; j < columns.size(); ++j) {
      for (int64_t plane = 0; plane < part.channels * part.frames; ++plane)
        for (int64_t y = 0; y < tile_height; ++y)
          std::copy_n(z.data() + (plane * shape.height + rows[i] + y) * shape.width + columns[j], tile_width,
                      cut.data() + (plane * tile_height + y) * tile_width);
      pack_latents(part, cut.data(), decode.input("latents"));
      REDLINE_TRY(decode.run(sizes));
      const float* pixel = decode.output("image");
      const std::vector<float> down = ramps(rows, i, tile_height, scale), across = ramps(columns, j, tile_width, scale);
      for (int64_t frame = 0; frame < frames; ++frame)
        for (int64_t y = 0; y < tile_height * scale; ++y)
          for (int64_t x = 0; x < tile_width * scale; ++x, pixel += 3) {
            const int64_t at = (rows[i] * scale + y) * width + columns[j] * scale + x;
            const float weight = down[static_cast<size_t>(y)] * across[static_cast<size_t>(x)];
            if (frame == 0) weights[static_cast<size_t>(at)] += weight;
            float* sum = rgb.data() + (frame * height * width + at) * 3;
            for (int64_t k = 0; k < 3; ++k) sum[k] += weight * pixel[k];
          }
    }
  for (int64_t frame = 0; frame < frames; ++frame)
    for (size_t p = 0; p < weights.size(); ++p)
      for (size_t k = 0; k < 3; ++k) rgb[(static_cast<size_t>(frame) * weights.size() + p) * 3 + k] /= weights[p];
  return {};
}

}  // namespace redline
