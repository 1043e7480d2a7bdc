// LPIPS, a learned perceptual distance between images: Zhang et al. 2018, arXiv:1801.03924, version 0.1 with AlexNet.
// Five stages of an AlexNet process both images. Each stage's features are normalized to unit length at every pixel;
// their squared differences are weighted by a learned factor per channel, averaged over pixels, and summed over stages.
// The user supplies the weights: Redline ships none.
#pragma once

#include <vector>

#include "base/error.h"
#include "redline/rgb_image.h"

namespace redline::lab {

class Lpips {
 public:
  /// Opens a safetensors file with the convolutions of torchvision's alexnet (features.0, .3, .6, .8, .10 .weight and
  /// .bias) or of lpips.LPIPS(net="alex") (net.slice1.0, slice2.3, slice3.6, slice4.8, slice5.10), and the weights per
  /// channel lin0.model.1.weight .. lin4.model.1.weight. The tensors determine the number of channels. not_found: a
  /// missing tensor, with its possible names; invalid_argument: shapes that do not fit together.
  static Result<Lpips> open(const std::string& path);

  /// Returns the distance of two images: 0 for identical images; below 0.05 the difference is hardly visible, 0.2 is a
  /// different image. invalid_argument: images of different sizes, or fewer than 31 pixels per side (too small for the
  /// last stage).
  Result<double> distance(const RgbImage& image, const RgbImage& reference) const;

 private:
  struct Stage {
    int64_t out = 0, in = 0, kernel = 0;
    std::vector<float> weight;  ///< [kernel * kernel * in, out]: the weights of all outputs are contiguous
    std::vector<float> bias, channel_weights;
  };
  struct Features {
    int64_t height = 0, width = 0, channels = 0;
    std::vector<float> values;  ///< [height, width, channels]
  };
  static Features convolve(const Features& in, const Stage& stage, int64_t stride, int64_t padding);
  static Features max_pool(const Features& in);
  std::vector<Features> features(const RgbImage& image) const;

  std::vector<Stage> stages_;
};

}  // namespace redline::lab
