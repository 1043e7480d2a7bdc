// Image similarity metrics as used in papers on accelerated sampling.
#pragma once

#include "base/error.h"
#include "redline/rgb_image.h"

namespace redline::lab {

/// Returns the peak signal-to-noise ratio in dB over all channels: -10 log10(mean squared difference of values in [0,
/// 1]); 100, the maximum, if that mean is below 1e-10, as in TeaCache's metric. Averages over images are averages of dB
/// values. invalid_argument: images of different sizes, or empty.
Result<double> psnr(const RgbImage& image, const RgbImage& reference);

/// Returns the structural similarity, Wang et al. 2004: 11x11 windows with Gaussian weights (sigma 1.5), C1 = 0.01^2
/// and C2 = 0.03^2 on values in [0, 1], averaged over all windows inside the image and over the channels.
/// invalid_argument: as above, or fewer than 11 pixels per side.
Result<double> ssim(const RgbImage& image, const RgbImage& reference);

}  // namespace redline::lab
