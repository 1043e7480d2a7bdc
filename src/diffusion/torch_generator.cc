#include "diffusion/torch_generator.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace redline {
namespace {

constexpr size_t kBlock = 16;

// Logarithm, sine and cosine after S. Moshier's Cephes library (logf, sinf, cosf; netlib.org/cephes), whose vector form
// torch's block path uses. Multiply-adds are fused exactly where its compiler fuses them.
float cephes_log(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  float exponent = static_cast<float>(static_cast<int>(bits >> 23) - 126);
  float m = std::bit_cast<float>((bits & 0x007fffffu) | 0x3f000000u);  // [0.5, 1)
  if (m < 0.707106781186547524f) {
    exponent -= 1;
    m = m - 1 + m;
  } else {
    m -= 1;
  }
  constexpr float kTerms[] = {-1.1514610310E-1f, 1.1676998740E-1f, -1.2420140846E-1f, 1.4249322787E-1f,
                              -1.6668057665E-1f, 2.0000714765E-1f, -2.4999993993E-1f, 3.3333331174E-1f};
  float series = 7.0376836292E-2f;
  for (float term : kTerms) series = std::fma(series, m, term);
  const float square = m * m;
  // ln 2 in two parts; the larger one has few significant bits.
  float low = std::fma(series * m, square, exponent * -2.12194440e-4f);
  low = std::fma(-0.5f, square, low);
  return std::fma(exponent, 0.693359375f, m + low);
}

// Computes sine and cosine for x in [0, 2 pi].
void cephes_sincos(float x, float& sine, float& cosine) {
  const int octant = (static_cast<int>(x * 1.27323954473516f) + 1) & ~1;
  const auto turns = static_cast<float>(octant);
  for (float part : {-0.78515625f, -2.4187564849853515625e-4f, -3.77489497744594108e-8f})  // pi / 4 in three
    x = std::fma(turns, part, x);
  const float square = x * x;
  float even = std::fma(2.443315711809948e-5f, square, -1.388731625493765e-3f);
  even = std::fma(even, square, 4.166664568298827e-2f) * square;
  even = std::fma(even, square, -0.5f * square) + 1;
  float odd = std::fma(-1.9515295891e-4f, square, 8.3321608736e-3f);
  odd = std::fma(odd, square, -1.6666654611e-1f) * square;
  odd = std::fma(odd, x, x);
  const bool swapped = octant & 2;
  sine = swapped ? even : odd;
  cosine = swapped ? odd : even;
  if (octant & 4) sine = -sine;
  if ((octant + 2) & 4) cosine = -cosine;
}

// Box and Muller 1958: places 0 to 7 hold radii and 8 to 15 angles, uniform in [0, 1).
void box_muller(float* block) {
  constexpr auto kTwoPi = static_cast<float>(2 * std::numbers::pi);
  for (size_t i = 0; i < kBlock / 2; ++i) {
    const float radius = std::sqrt(-2 * cephes_log(1 - block[i]));
    float sine = 0, cosine = 0;
    cephes_sincos(kTwoPi * block[i + kBlock / 2], sine, cosine);
    block[i] = radius * cosine;
    block[i + kBlock / 2] = radius * sine;
  }
}

}  // namespace

double TorchGenerator::uniform_double() {
  const uint64_t high = engine_();
  const uint64_t bits = high << 32 | engine_();
  return static_cast<double>(bits & ((uint64_t{1} << 53) - 1)) * 0x1p-53;
}

double TorchGenerator::draw_double() {
  if (kept_) {
    const double value = *kept_;
    kept_.reset();
    return value;
  }
  const double angle = 2 * std::numbers::pi * uniform_double();
  const double radius = std::sqrt(-2 * std::log1p(-uniform_double()));
  kept_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

void TorchGenerator::draw(std::span<float> out) {
  if (out.size() < kBlock) {
    for (float& value : out) value = static_cast<float>(draw_double());
    return;
  }
  const auto uniform = [&](std::span<float> values) {
    for (float& value : values) value = static_cast<float>(engine_() & 0xffffffu) * 0x1p-24f;
  };
  uniform(out);
  for (size_t at = 0; at + kBlock <= out.size(); at += kBlock) box_muller(out.data() + at);
  if (out.size() % kBlock == 0) return;
  const std::span<float> last = out.last(kBlock);
  uniform(last);
  box_muller(last.data());
}

}  // namespace redline
