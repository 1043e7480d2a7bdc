// Sines and cosines of large angles. CUDA's library functions reduce such angles with a table in local memory, for
// which a kernel would need a stack frame.
#pragma once

#include "kernels/tiles/lanes.h"

namespace redline::tiles {

struct SineCosine {
  Lanes<float> sine, cosine;
};

/// Returns both within 2^-24 of the exact values for |angle| < 2^31. The angle is reduced to [-pi/4, pi/4] in double
/// precision (Cody and Waite 1980), where the Taylor series ends below 2^-37.
TILE_FN SineCosine sine_cosine(const Lanes<float>& angle) {
  constexpr double kHalfPi = 0x1.921fb54442d18p+0, kHalfPiRest = 0x1.1a62633145c07p-54;
  constexpr double kInteger = 0x1.8p+52;  // added, it rounds to an integer
  const Lanes<double> x = convert<double>(angle);
  const Lanes<double> quarters = (x * (1 / kHalfPi) + kInteger) - kInteger;
  const Lanes<double> r = fma_of(quarters, -kHalfPiRest, fma_of(quarters, -kHalfPi, x)), square = r * r;
  Lanes<double> sine = -1.0 / 39916800, cosine = 1.0 / 479001600;
  constexpr double kSine[] = {1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1.0};
  constexpr double kCosine[] = {-1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1.0};
  TILE_UNROLL
  for (int i = 0; i < 5; ++i) sine = sine * square + kSine[i];
  TILE_UNROLL
  for (int i = 0; i < 6; ++i) cosine = cosine * square + kCosine[i];
  const Lanes<float> s = convert<float>(sine * r), c = convert<float>(cosine);
  const Lanes<int64_t> quadrant = convert<int64_t>(quarters) & int64_t{3};
  const Lanes<bool> is_odd = (quadrant & int64_t{1}) != Lanes<int64_t>(int64_t{0});
  const Lanes<float> sine_of = select(is_odd, c, s), cosine_of = select(is_odd, s, c);
  return {select(quadrant >= Lanes<int64_t>(int64_t{2}), -sine_of, sine_of),
          select((quadrant == Lanes<int64_t>(int64_t{1})) | (quadrant == Lanes<int64_t>(int64_t{2})), -cosine_of,
                 cosine_of)};
}

}  // namespace redline::tiles
