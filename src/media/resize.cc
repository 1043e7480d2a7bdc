#include "media/resize.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace redline {
namespace {

constexpr int kBits = 22;  // of a weight's fraction: 8 bits of a pixel and the sum of the weights fit into 32 bits

double lanczos3(double x) {
  constexpr double kLobes = 3;
  if (x == 0) return 1;
  if (std::abs(x) >= kLobes) return 0;
  const double t = std::numbers::pi * x;
  return std::sin(t) / t * std::sin(t / kLobes) / (t / kLobes);
}

/// The pixels from which one pixel is made: `count` weights from `first` on.
struct Taps {
  int64_t first = 0, count = 0;
  size_t weights = 0;  ///< index of the first weight in Filter::weights
};

struct Filter {
  std::vector<Taps> taps;
  std::vector<int32_t> weights;
};

/// Returns the weights over `from` pixels for each of `to` pixels.
Filter make_filter(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), width = std::max(scale, 1.0),
               support = 3 * width;
  Filter filter;
  std::vector<double> exact;
  for (int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
    const auto end = std::min<int64_t>(from, static_cast<int64_t>(center + support + 0.5));
    exact.clear();
    double sum = 0;
    for (int64_t k = first; k < end; ++k) {
      exact.push_back(lanczos3((static_cast<double>(k) - center + 0.5) / width));
      sum += exact.back();
    }
    filter.taps.push_back({first, end - first, filter.weights.size()});
    for (const double weight : exact)
      filter.weights.push_back(static_cast<int32_t>(std::lround(weight / sum * (1 << kBits))));
  }
  return filter;
}

uint8_t rounded(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

RgbImage resize_rows(const RgbImage& image, int64_t width) {
  const Filter filter = make_filter(image.width, width);
  RgbImage out = {width, image.height, std::vector<uint8_t>(static_cast<size_t>(width * image.height * 3))};
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* row = image.rgb.data() + y * image.width * 3;
    uint8_t* to = out.rgb.data() + y * width * 3;
    for (const Taps& taps : filter.taps) {
      int32_t sum[3] = {1 << (kBits - 1), 1 << (kBits - 1), 1 << (kBits - 1)};
      const uint8_t* pixel = row + taps.first * 3;
      for (int64_t k = 0; k < taps.count; ++k, pixel += 3) {
        const int32_t weight = filter.weights[taps.weights + static_cast<size_t>(k)];
        for (int c = 0; c < 3; ++c) sum[c] += weight * pixel[c];
      }
      for (const int32_t s : sum) *to++ = rounded(s);
    }
  }
  return out;
}

RgbImage resize_columns(const RgbImage& image, int64_t height) {
  const Filter filter = make_filter(image.height, height);
  const auto row_bytes = static_cast<size_t>(image.width * 3);
  RgbImage out = {image.width, height, std::vector<uint8_t>(row_bytes * static_cast<size_t>(height))};
  std::vector<int32_t> sums(row_bytes);
  for (int64_t y = 0; y < height; ++y) {
    const Taps& taps = filter.taps[static_cast<size_t>(y)];
    std::fill(sums.begin(), sums.end(), 1 << (kBits - 1));
    for (int64_t k = 0; k < taps.count; ++k) {
      const int32_t weight = filter.weights[taps.weights + static_cast<size_t>(k)];
      const uint8_t* row = image.rgb.data() + static_cast<size_t>(taps.first + k) * row_bytes;
      for (size_t i = 0; i < row_bytes; ++i) sums[i] += weight * row[i];
    }
    uint8_t* to = out.rgb.data() + static_cast<size_t>(y) * row_bytes;
    for (size_t i = 0; i < row_bytes; ++i) to[i] = rounded(sums[i]);
  }
  return out;
}

/// Copies `image` to a canvas at (left, top). Parts outside are cut off. Pixels that the image does not cover take its
/// nearest pixel.
RgbImage placed(const RgbImage& image, int64_t width, int64_t height, int64_t left, int64_t top) {
  RgbImage out = {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  uint8_t* to = out.rgb.data();
  for (int64_t y = 0; y < height; ++y) {
    const int64_t row = std::clamp<int64_t>(y - top, 0, image.height - 1);
    for (int64_t x = 0; x < width; ++x) {
      const int64_t column = std::clamp<int64_t>(x - left, 0, image.width - 1);
      to = std::copy_n(image.rgb.data() + (row * image.width + column) * 3, 3, to);
    }
  }
  return out;
}

}  // namespace

Result<ResizeMode> resize_mode_of(std::string_view name) {
  if (name.empty() || name == "stretch") return ResizeMode::kStretch;
  if (name == "crop") return ResizeMode::kCrop;
  if (name == "fit") return ResizeMode::kFit;
  return invalid_argument("resize is \"{}\"; it must be stretch, crop or fit", name);
}

std::string_view resize_mode_name(ResizeMode mode) {
  return mode == ResizeMode::kCrop ? "crop" : mode == ResizeMode::kFit ? "fit" : "stretch";
}

RgbImage resize_lanczos(const RgbImage& image, int64_t width, int64_t height) {
  if (image.width == width) return image.height == height ? image : resize_columns(image, height);
  RgbImage rows = resize_rows(image, width);
  return image.height == height ? rows : resize_columns(rows, height);
}

RgbImage resize_image(const RgbImage& image, int64_t width, int64_t height, ResizeMode mode) {
  if (mode == ResizeMode::kStretch || (image.width == width && image.height == height))
    return resize_lanczos(image, width, height);
  // One side of the scaled image is that of the new size. The other one keeps the proportions, rounded down.
  // true if the new size is wider than the image, in proportion
  const bool is_wider = width * image.height > image.width * height;
  const bool by_width = is_wider == (mode == ResizeMode::kCrop);
  const int64_t across = by_width ? width : std::max<int64_t>(1, image.width * height / image.height);
  const int64_t down = by_width ? std::max<int64_t>(1, image.height * width / image.width) : height;
  return placed(resize_lanczos(image, across, down), width, height, width / 2 - across / 2, height / 2 - down / 2);
}

}  // namespace redline
