// LPIPS, a learned distance between pictures: Zhang et al. 2018, arXiv:1801.03924, version 0.1 over AlexNet.
//
// Five stages of an AlexNet see both pictures; each stage's features are brought to unit length at every place, their
// squared differences weighted by a learned number for each channel, averaged over places, and summed over stages.
// Weights are the user's: Redline brings none.
#pragma once

#include <vector>

#include "base/error.h"
#include "redline/picture.h"

namespace redline::lab {

class Lpips {
 public:
  /// A safetensors file with the convolutions of torchvision's alexnet (features.0, .3, .6, .8, .10 .weight and .bias)
  /// or of lpips.LPIPS(net="alex") (net.slice1.0, slice2.3, slice3.6, slice4.8, slice5.10), and its weights by channel
  /// lin0.model.1.weight .. lin4.model.1.weight. Channels are as many as the tensors have. not_found: a tensor that is
  /// missing, with the names it may have; invalid_argument: shapes that do not fit together.
  static Result<Lpips> open(const std::string& path);

  /// 0 for equal pictures; below 0.05 hardly seen, 0.2 another picture. invalid_argument: pictures of other sizes, or
  /// fewer than 31 pixels a side (the last stage would see none).
  Result<double> distance(const RgbImage& picture, const RgbImage& reference) const;

 private:
  struct Stage {
    int64_t out = 0, in = 0, kernel = 0;
    std::vector<float> weight;  ///< [kernel * kernel * in, out]: one place's products run along the outputs
    std::vector<float> bias, channel_weights;
  };
  struct Features {
    int64_t height = 0, width = 0, channels = 0;
    std::vector<float> values;  ///< [height, width, channels]
  };
  static Features convolve(const Features& in, const Stage& stage, int64_t stride, int64_t padding);
  static Features max_pool(const Features& in);
  std::vector<Features> features(const RgbImage& picture) const;

  std::vector<Stage> stages_;
};

}  // namespace redline::lab
