// Media that models make besides text: images, video and sound.
#pragma once

#include <cstdint>
#include <vector>

#include "redline/rgb_image.h"

namespace redline {

/// A clip without sound.
struct Video {
  std::vector<RgbImage> frames;  ///< all of one size
  double frame_rate = 0;         ///< frames per second
};

struct Sound {
  std::vector<float> samples;  ///< [length, channels] in -1 .. 1
  int64_t channels = 1;
  int64_t sample_rate = 0;  ///< samples of each channel per second
};

/// The media of one result. A model fills in those of its kind and leaves the others empty.
struct MediaResult {
  std::vector<RgbImage> images;
  std::vector<Video> videos;
  std::vector<Sound> sounds;
};

}  // namespace redline
