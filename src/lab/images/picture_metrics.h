// Similarity of two images, as defined in papers on faster sampling.
#pragma once

#include "base/error.h"
#include "redline/picture.h"

namespace redline::lab {

/// Peak signal-to-noise ratio in dB over all channels: -10 log10(mean squared difference of values in [0, 1]); 100, the
/// most there is, where that mean is below 1e-10. As in TeaCache's measure; averages over pictures are of dB.
/// invalid_argument: pictures of other sizes, or empty.
Result<double> psnr(const RgbImage& picture, const RgbImage& reference);

/// Structural similarity, Wang et al. 2004: windows of 11 x 11 with Gaussian weights (sigma 1.5), C1 = 0.01^2 and
/// C2 = 0.03^2 on values in [0, 1], the mean over all windows that lie wholly within the picture, and over the
/// channels. invalid_argument: as above, or fewer than 11 pixels a side.
Result<double> ssim(const RgbImage& picture, const RgbImage& reference);

}  // namespace redline::lab
