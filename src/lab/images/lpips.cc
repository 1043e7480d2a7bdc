#include "lab/images/lpips.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "formats/safetensors.h"

namespace redline::lab {
namespace {

constexpr int kStages = 5;
// AlexNet: (stride, padding) of each convolution, and whether a 3x3 max pool with stride 2 precedes it.
constexpr int64_t kStride[kStages] = {4, 1, 1, 1, 1}, kPadding[kStages] = {2, 2, 1, 1, 1};
constexpr bool kPooled[kStages] = {false, true, true, false, false};
constexpr const char* kTorchvision[kStages] = {"features.0", "features.3", "features.6", "features.8", "features.10"};
constexpr const char* kPackage[kStages] = {"net.slice1.0", "net.slice2.3", "net.slice3.6", "net.slice4.8",
                                           "net.slice5.10"};
constexpr int64_t kKernel[kStages] = {11, 5, 3, 3, 3};
// Normalizes colours in [-1, 1] to the mean and standard deviation that AlexNet was trained on.
constexpr float kShift[3] = {-0.030F, -0.088F, -0.188F}, kScale[3] = {0.458F, 0.448F, 0.450F};

Result<std::vector<float>> read_floats(const SafetensorsFiles& file, const std::vector<std::string>& names,
                                       std::vector<int64_t>& shape) {
  for (const std::string& name : names) {
    const SafetensorsTensor* tensor = file.tensor(name);
    if (tensor == nullptr) continue;
    if (tensor->view.data == nullptr)
      return unsupported("{} has type {}; F32, F16 and BF16 are read", name, tensor->type_name);
    shape = tensor->view.shape;
    std::vector<float> values(static_cast<size_t>(tensor->view.num_elements()));
    unpack_row(tensor->view.dtype, tensor->view.data, values.data(), std::ssize(values));
    return values;
  }
  return not_found("no tensor {}", fmt::join(names, " or "));
}

}  // namespace

Result<Lpips> Lpips::open(const std::string& path) {
  REDLINE_ASSIGN(const SafetensorsFiles file, SafetensorsFiles::open_file(path));
  Lpips lpips;
  for (int i = 0; i < kStages; ++i) {
    Stage stage;
    std::vector<int64_t> shape, bias_shape, lin_shape;
    const std::string a = kTorchvision[i], b = kPackage[i], lin = fmt::format("lin{}.model.1.weight", i);
    REDLINE_ASSIGN(const std::vector<float> weight,
                   read_floats(file, {a + ".weight", b + ".weight"}, shape).within(path));
    REDLINE_ASSIGN(stage.bias, read_floats(file, {a + ".bias", b + ".bias"}, bias_shape).within(path));
    REDLINE_ASSIGN(stage.channel_weights, read_floats(file, {lin, "net." + lin}, lin_shape).within(path));
    const int64_t in = i == 0 ? 3 : lpips.stages_.back().out;
    if (shape.size() != 4 || shape[1] != in || shape[2] != kKernel[i] || shape[3] != kKernel[i])
      return invalid_argument("{}: {}.weight is [{}], LPIPS takes [channels, {}, {}, {}]", path, a,
                              fmt::join(shape, ", "), in, kKernel[i], kKernel[i]);
    stage.out = shape[0];
    stage.in = in;
    stage.kernel = kKernel[i];
    if (std::ssize(stage.bias) != stage.out || std::ssize(stage.channel_weights) != stage.out)
      return invalid_argument("{}: {}.bias has {} elements and {} has {}, the convolution has {} channels", path, a,
                              stage.bias.size(), lin, stage.channel_weights.size(), stage.out);
    const int64_t places = stage.kernel * stage.kernel;
    stage.weight.resize(weight.size());
    for (int64_t o = 0; o < stage.out; ++o)
      for (int64_t c = 0; c < in; ++c)
        for (int64_t p = 0; p < places; ++p)
          stage.weight[(p * in + c) * stage.out + o] = weight[(o * in + c) * places + p];
    lpips.stages_.push_back(std::move(stage));
  }
  return lpips;
}

/// Applies a convolution with bias, then ReLU.
Lpips::Features Lpips::convolve(const Features& in, const Stage& s, int64_t stride, int64_t padding) {
  Features out;
  out.height = (in.height + 2 * padding - s.kernel) / stride + 1;
  out.width = (in.width + 2 * padding - s.kernel) / stride + 1;
  out.channels = s.out;
  out.values.resize(static_cast<size_t>(out.height * out.width * s.out));
  for (int64_t y = 0; y < out.height; ++y)
    for (int64_t x = 0; x < out.width; ++x) {
      float* to = out.values.data() + (y * out.width + x) * s.out;
      std::copy(s.bias.begin(), s.bias.end(), to);
      for (int64_t ky = 0; ky < s.kernel; ++ky)
        for (int64_t kx = 0; kx < s.kernel; ++kx) {
          const int64_t iy = y * stride + ky - padding, ix = x * stride + kx - padding;
          if (iy < 0 || iy >= in.height || ix < 0 || ix >= in.width) continue;
          const float* from = in.values.data() + (iy * in.width + ix) * s.in;
          const float* weight = s.weight.data() + (ky * s.kernel + kx) * s.in * s.out;
          for (int64_t c = 0; c < s.in; ++c)
            for (int64_t o = 0; o < s.out; ++o) to[o] += from[c] * weight[c * s.out + o];
        }
      for (int64_t o = 0; o < s.out; ++o) to[o] = std::max(to[o], 0.0F);
    }
  return out;
}

/// Applies a 3x3 max pool with stride 2, without padding.
Lpips::Features Lpips::max_pool(const Features& in) {
  Features out;
  out.height = (in.height - 3) / 2 + 1;
  out.width = (in.width - 3) / 2 + 1;
  out.channels = in.channels;
  out.values.assign(static_cast<size_t>(out.height * out.width * out.channels), -INFINITY);
  for (int64_t y = 0; y < out.height; ++y)
    for (int64_t x = 0; x < out.width; ++x)
      for (int64_t k = 0; k < 9; ++k) {
        const float* from = in.values.data() + ((2 * y + k / 3) * in.width + 2 * x + k % 3) * in.channels;
        float* to = out.values.data() + (y * out.width + x) * out.channels;
        for (int64_t c = 0; c < out.channels; ++c) to[c] = std::max(to[c], from[c]);
      }
  return out;
}

std::vector<Lpips::Features> Lpips::features(const RgbImage& image) const {
  Features x;
  x.height = image.height;
  x.width = image.width;
  x.channels = 3;
  x.values.resize(image.rgb.size());
  for (size_t i = 0; i < image.rgb.size(); ++i)
    x.values[i] = (static_cast<float>(image.rgb[i]) / 127.5F - 1 - kShift[i % 3]) / kScale[i % 3];
  std::vector<Features> all;
  for (int i = 0; i < kStages; ++i) {
    const Features& before = i == 0 ? x : all.back();
    all.push_back(kPooled[i] ? convolve(max_pool(before), stages_[i], kStride[i], kPadding[i])
                             : convolve(before, stages_[i], kStride[i], kPadding[i]));
  }
  return all;
}

Result<double> Lpips::distance(const RgbImage& a, const RgbImage& b) const {
  if (a.width != b.width || a.height != b.height)
    return invalid_argument("LPIPS compares images of one size; these are {}x{} and {}x{}", a.width, a.height, b.width,
                            b.height);
  if (a.width < 31 || a.height < 31)
    return invalid_argument("LPIPS needs at least 31 pixels a side, not {}x{}", a.width, a.height);
  const std::vector<Features> of_a = features(a), of_b = features(b);
  double sum = 0;
  for (size_t stage = 0; stage < of_a.size(); ++stage) {
    const Features &fa = of_a[stage], &fb = of_b[stage];
    const int64_t places = fa.height * fa.width, channels = fa.channels;
    double total = 0;
    for (int64_t p = 0; p < places; ++p) {
      const float *va = fa.values.data() + p * channels, *vb = fb.values.data() + p * channels;
      double square_a = 0, square_b = 0;
      for (int64_t c = 0; c < channels; ++c) {
        square_a += static_cast<double>(va[c]) * va[c];
        square_b += static_cast<double>(vb[c]) * vb[c];
      }
      const double length_a = std::sqrt(square_a) + 1e-10, length_b = std::sqrt(square_b) + 1e-10;
      for (int64_t c = 0; c < channels; ++c) {
        const double d = va[c] / length_a - vb[c] / length_b;
        total += stages_[stage].channel_weights[c] * d * d;
      }
    }
    sum += total / static_cast<double>(places);
  }
  return sum;
}

}  // namespace redline::lab
