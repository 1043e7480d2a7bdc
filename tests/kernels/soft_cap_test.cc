// soft_cap of every instruction set against float64.
#include "support/guarded_buffer.h"
#include "support/isa_test.h"
#include "support/special_values.h"

namespace redline {
namespace {

using SoftCap = IsaTest;

TEST_P(SoftCap, HoldsItsBoundOverTheWholeRange) {
  // Every 4999th float from 2^-70 to 2^66 and its negative: far below the cap, about it, and far above.
  std::vector<float> x;
  for (uint32_t bits = __builtin_bit_cast(uint32_t, 0x1p-70f); bits < __builtin_bit_cast(uint32_t, 0x1p66f);
       bits += 4999) {
    x.push_back(__builtin_bit_cast(float, bits));
    x.push_back(-x.back());
  }
  std::vector<float> y(x.size());
  for (const float cap : {1.0f, 30.0f, 50.0f}) {
    kernels().soft_cap({x.data(), y.data(), std::ssize(x), cap});
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = double{cap} * std::tanh(double{x[i]} / double{cap});
      ASSERT_NEAR(y[i], want, 10 * kRounding * std::abs(want)) << "cap " << cap << ", x " << x[i];
    }
  }
}

TEST_P(SoftCap, TailsInPlaceAndWhatIsNoNumber) {
  for (const int64_t count : {0, 1, 3, 7, 8, 9, 16, 31}) {
    testing::GuardedBuffer<float> x(count);
    for (int64_t i = 0; i < count; ++i) x[i] = static_cast<float>(i) - 4;
    kernels().soft_cap({x.data(), x.data(), count, 2.0f});
    for (int64_t i = 0; i < count; ++i) ASSERT_NEAR(x[i], 2 * std::tanh((static_cast<double>(i) - 4) / 2), 2e-6);
  }
  const float in[] = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 0.0f};
  float out[4];
  kernels().soft_cap({in, out, 4, 5.0f});
  EXPECT_NEAR(out[0], 5.0f, 5e-6);
  EXPECT_NEAR(out[1], -5.0f, 5e-6);
  EXPECT_TRUE(std::isnan(out[2]));
  EXPECT_EQ(out[3], 0.0f);
}

REDLINE_INSTANTIATE_PER_ISA(SoftCap);

}  // namespace
}  // namespace redline
