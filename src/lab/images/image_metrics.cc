#include "lab/images/image_metrics.h"

#include <array>
#include <cmath>

namespace redline::lab {
namespace {

constexpr int64_t kWindow = 11;

Status check(const RgbImage& a, const RgbImage& b, int64_t least) {
  if (a.width != b.width || a.height != b.height)
    return invalid_argument("images of {} x {} and {} x {} pixels cannot be compared", a.width, a.height, b.width,
                            b.height);
  if (a.width < least || a.height < least)
    return invalid_argument("images of {} x {} pixels; expected at least {} each way", a.width, a.height, least);
  const auto bytes = static_cast<size_t>(a.width * a.height * 3);
  if (a.rgb.size() != bytes || b.rgb.size() != bytes)
    return invalid_argument("{} and {} bytes for {} x {} pixels of RGB", a.rgb.size(), b.rgb.size(), a.width, a.height);
  return {};
}

std::array<double, kWindow> gaussian() {
  std::array<double, kWindow> weights;
  double sum = 0;
  for (int64_t i = 0; i < kWindow; ++i) {
    const int64_t offset = i - kWindow / 2;
    const double x = static_cast<double>(offset) / 1.5;
    sum += weights[static_cast<size_t>(i)] = std::exp(-x * x / 2);
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

// Returns the weighted mean of every window inside [height, width], computed along rows, then along columns.
std::vector<double> window_means(const std::vector<double>& values, int64_t width, int64_t height) {
  static const std::array<double, kWindow> weights = gaussian();
  const int64_t out_width = width - kWindow + 1, out_height = height - kWindow + 1;
  std::vector<double> rows(static_cast<size_t>(out_width * height)), means(static_cast<size_t>(out_width * out_height));
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < out_width; ++x)
      for (int64_t i = 0; i < kWindow; ++i)
        rows[static_cast<size_t>(y * out_width + x)] +=
            weights[static_cast<size_t>(i)] * values[static_cast<size_t>(y * width + x + i)];
  for (int64_t y = 0; y < out_height; ++y)
    for (int64_t i = 0; i < kWindow; ++i)
      for (int64_t x = 0; x < out_width; ++x)
        means[static_cast<size_t>(y * out_width + x)] +=
            weights[static_cast<size_t>(i)] * rows[static_cast<size_t>((y + i) * out_width + x)];
  return means;
}

}  // namespace

Result<double> psnr(const RgbImage& image, const RgbImage& reference) {
  REDLINE_TRY(check(image, reference, 1));
  double sum = 0;
  for (size_t i = 0; i < image.rgb.size(); ++i) {
    const double difference = (image.rgb[i] - reference.rgb[i]) / 255.0;
    sum += difference * difference;
  }
  const double mean = sum / static_cast<double>(image.rgb.size());
  return mean < 1e-10 ? 100 : -10 * std::log10(mean);
}

Result<double> ssim(const RgbImage& image, const RgbImage& reference) {
  REDLINE_TRY(check(image, reference, kWindow));
  constexpr double kC1 = 0.01 * 0.01, kC2 = 0.03 * 0.03;
  const auto pixels = static_cast<size_t>(image.width * image.height);
  double sum = 0;
  size_t count = 0;
  for (size_t channel = 0; channel < 3; ++channel) {
    std::vector<double> a(pixels), b(pixels), aa(pixels), bb(pixels), ab(pixels);
    for (size_t i = 0; i < pixels; ++i) {
      a[i] = image.rgb[3 * i + channel] / 255.0;
      b[i] = reference.rgb[3 * i + channel] / 255.0;
      aa[i] = a[i] * a[i], bb[i] = b[i] * b[i], ab[i] = a[i] * b[i];
    }
    for (std::vector<double>* values : {&a, &b, &aa, &bb, &ab})
      *values = window_means(*values, image.width, image.height);
    for (size_t i = 0; i < a.size(); ++i) {
      const double product = a[i] * b[i], squares = a[i] * a[i] + b[i] * b[i];
      const double covariance = ab[i] - product, variances = aa[i] + bb[i] - squares;
      sum += (2 * product + kC1) * (2 * covariance + kC2) / ((squares + kC1) * (variances + kC2));
    }
    count += a.size();
  }
  return sum / static_cast<double>(count);
}

}  // namespace redline::lab
