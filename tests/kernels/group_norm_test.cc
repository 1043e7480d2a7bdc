// group_norm_sums and group_norm of every instruction set against float64.
#include "kernels/cpu/group_norm.h"

#include <memory>

#include "support/guarded_buffer.h"
#include "support/isa_test.h"

namespace redline {
namespace {

using testing::GuardedBuffer;
using GroupNorm = IsaTest;

struct Size {
  int64_t rows, channels, groups;
};
// Around every vector width and four of them, blocks of 128 rows and of 256 KiB, a prime, a real model's.
const Size kGroupNormSizes[] = {{1, 1, 1},      {1, 32, 32},    {2, 4, 2},     {5, 15, 3},   {7, 16, 16},
                                {127, 17, 1},   {128, 63, 7},   {129, 64, 32}, {300, 65, 5}, {37, 127, 1},
                                {260, 320, 32}, {90, 1280, 32}, {21, 2560, 32}};

std::unique_ptr<uint8_t[]> make_scratch() { return std::make_unique<uint8_t[]>(kScratchBytes); }

// A float mean is off by one rounding of it, deviations by a few of themselves (each channel of a block is summed in
// order by vectors, at most 128 terms; what that is off is corrected by the second pass).
void expect_sums(const CpuKernels& kernels, const Size& s, float mean) {
  SCOPED_TRACE(fmt::format("{} rows, {} channels in {} groups around {}", s.rows, s.channels, s.groups, mean));
  GuardedBuffer<float> x(s.rows * s.channels), sums(2 * s.groups);
  const std::vector<float> values = test_values(static_cast<size_t>(x.size()), 11, 2.0f);
  for (int64_t i = 0; i < x.size(); ++i) x[i] = values[static_cast<size_t>(i)] + mean;
  const auto scratch = make_scratch();
  GroupNormArgs a = {};
  a.x = x.data(), a.rows = s.rows, a.channels = s.channels, a.groups = s.groups, a.sums = sums.data();
  a.scratch = scratch.get();
  kernels.group_norm_sums(a);
  const int64_t width = s.channels / s.groups;
  for (int64_t g = 0; g < s.groups; ++g) {
    double centre = 0, deviations = 0;
    const auto count = static_cast<double>(s.rows * width);
    auto each = [&](const auto& body) {
      for (int64_t r = 0; r < s.rows; ++r)
        for (int64_t c = 0; c < width; ++c) body(double{x[r * s.channels + g * width + c]});
    };
    each([&](double v) { centre += v / count; });
    each([&](double v) { deviations += (v - centre) * (v - centre); });
    // Values are within 2 of `mean`: differences are as exact as the values, means of channels are rounded.
    const double mean_error = 2 * kRounding * (std::abs(centre) + 2);
    ASSERT_NEAR(sums[2 * g], centre, mean_error) << "group " << g;
    ASSERT_NEAR(
        sums[2 * g + 1], deviations,
        140 * kRounding * deviations + 4 * mean_error * std::sqrt(count * deviations) + count * mean_error * mean_error)
        << "group " << g;
  }
}

TEST_P(GroupNorm, SumsAgreeWithReference) {
  for (const Size& s : kGroupNormSizes)
    for (float mean : {0.0f, -3.0f, 1000.0f}) expect_sums(kernels(), s, mean);
}

TEST_P(GroupNorm, SumsOfAConstantHaveNoDeviations) {
  for (float value : {0.0f, 1.0f, -0.1f, 12345.678f}) {
    const int64_t rows = 300, channels = 24, groups = 3;
    std::vector<float> x(static_cast<size_t>(rows * channels), value), sums(2 * groups);
    const auto scratch = make_scratch();
    GroupNormArgs a = {};
    a.x = x.data(), a.rows = rows, a.channels = channels, a.groups = groups, a.sums = sums.data();
    a.scratch = scratch.get();
    kernels().group_norm_sums(a);
    for (int64_t g = 0; g < groups; ++g) {
      EXPECT_FLOAT_EQ(sums[static_cast<size_t>(2 * g)], value);
      EXPECT_NEAR(sums[static_cast<size_t>(2 * g + 1)], 0, 1e-9 * value * value);
    }
  }
}

TEST_P(GroupNorm, ScalesShiftsAndActivates) {
  for (const Size& s : kGroupNormSizes)
    for (bool silu : {false, true}) {
      SCOPED_TRACE(fmt::format("{} rows, {} channels, silu {}", s.rows, s.channels, silu));
      const auto count = static_cast<size_t>(s.rows * s.channels);
      const std::vector<float> values = test_values(count, 5, 6.0f);
      const std::vector<float> scales = test_values(static_cast<size_t>(s.channels), 6, 2.0f);
      const std::vector<float> shifts = test_values(static_cast<size_t>(s.channels), 7, 2.0f);
      GuardedBuffer<float> x(s.rows * s.channels), y(s.rows * s.channels), scale(s.channels), shift(s.channels);
      for (int64_t i = 0; i < x.size(); ++i) x[i] = values[static_cast<size_t>(i)];
      for (int64_t i = 0; i < s.channels; ++i) {
        scale[i] = scales[static_cast<size_t>(i)];
        shift[i] = shifts[static_cast<size_t>(i)];
      }
      GroupNormArgs a = {};
      a.x = x.data(), a.rows = s.rows, a.channels = s.channels, a.y = y.data(), a.scale = scale.data();
      a.shift = shift.data(), a.silu = silu;
      kernels().group_norm(a);
      for (int64_t i = 0; i < x.size(); ++i) {
        const double product = double{x[i]} * double{scale[i % s.channels]},
                     v = product + double{shift[i % s.channels]};
        const double want = silu ? v / (1 + std::exp(-v)) : v;
        // Product and sum round once or twice; silu's slope is below 1.1, and it adds an exponential, a sum, a
        // division.
        const double bound =
            1.1 * kRounding * (std::abs(product) + std::abs(v)) + (silu ? 5 * kRounding * std::abs(want) : 0);
        ASSERT_NEAR(y[i], want, bound) << "element " << i;
      }
      a.y = x.data();
      kernels().group_norm(a);
      for (int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], y[i]) << "in place, element " << i;
    }
}

TEST_P(GroupNorm, NanReachesItsGroupAlone) {
  const int64_t rows = 3, channels = 8, groups = 2;
  std::vector<float> x = test_values(rows * channels, 1), sums(2 * groups);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  const auto scratch = make_scratch();
  GroupNormArgs a = {};
  a.x = x.data(), a.rows = rows, a.channels = channels, a.groups = groups, a.sums = sums.data();
  a.scratch = scratch.get();
  kernels().group_norm_sums(a);
  EXPECT_TRUE(std::isfinite(sums[0]) && std::isfinite(sums[1]));
  EXPECT_TRUE(std::isnan(sums[2]) && std::isnan(sums[3]));
}

REDLINE_INSTANTIATE_PER_ISA(GroupNorm);

}  // namespace
}  // namespace redline
