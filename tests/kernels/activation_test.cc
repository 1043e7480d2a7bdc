// activation of every instruction set against float64.
#include "kernels/cpu/activation.h"

#include "support/guarded_buffer.h"
#include "support/isa_test.h"
#include "support/special_values.h"

namespace redline {
namespace {

constexpr Activation kKinds[] = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu,
                                 Activation::kRelu, Activation::kTanh, Activation::kTanh3};

using ActivationKernel = IsaTest;

double want_of(Activation kind, double x) {
  switch (kind) {
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kGelu: return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    // tanh near -1 would lose the tail: this is the same function.
    case Activation::kGeluTanh: return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kQuickGelu: return x / (1 + std::exp(-1.702 * x));
    case Activation::kRelu: return x > 0 ? x : 0;
    case Activation::kTanh: return std::tanh(x);
    case Activation::kTanh3: return 3 * std::tanh(x / 3);
  }
  return NAN;
}

// As activation.kernel.cc states: the exponential has 2 units, the sum, the quotient and the products around it the
// rest; an argument s that is off by d u |s| changes e^s by as much. What is left of an overflowing exponential is
// below 2e-36.
double bound_of(Activation kind, double x, double want) {
  const double gelu_s = std::max(0.0, -1.5957691216 * x * (1 + 0.044715 * x * x));
  const double units[] = {6, 9 + x * x / 2, 6 + 4 * gelu_s, 6 + 4 * std::max(0.0, -1.702 * x), 0, 0, 0};
  const double fixed = kind == Activation::kTanh3  ? 10 * kRounding
                       : kind == Activation::kTanh ? 4 * kRounding
                       : kind == Activation::kRelu ? 0
                                                   : 2e-36;
  return units[static_cast<int>(kind)] * kRounding * std::abs(want) + fixed;
}

TEST_P(ActivationKernel, HoldsItsBoundOverTheWholeRange) {
  // Every 1999th float from 0 to 200 and its negative, then a few huge ones.
  std::vector<float> x;
  for (uint32_t bits = 0; bits <= __builtin_bit_cast(uint32_t, 200.0f); bits += 1999) {
    x.push_back(__builtin_bit_cast(float, bits));
    x.push_back(-x.back());
  }
  for (float huge : {1e4f, 1e13f, 1e20f, 3e38f}) x.push_back(huge), x.push_back(-huge);
  const auto n = static_cast<int64_t>(x.size());
  std::vector<float> y(x.size());
  for (Activation kind : kKinds) {
    kernels().activation({x.data(), n, nullptr, 0, y.data(), n, 1, n, kind});
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = want_of(kind, x[i]);
      ASSERT_LE(std::abs(y[i] - want), bound_of(kind, x[i], want))
          << "kind " << static_cast<int>(kind) << ", x " << x[i] << ", y " << y[i] << ", expected " << want;
    }
  }
}

TEST_P(ActivationKernel, RowsWithStridesTailsAndFactorsInPlaceOfEither) {
  for (int64_t cols : {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 127}) {
    const int64_t rows = 3, x_stride = cols + 2, up_stride = cols + 1, y_stride = cols + 3;
    testing::GuardedBuffer<float> x((rows - 1) * x_stride + cols), up((rows - 1) * up_stride + cols),
        y((rows - 1) * y_stride + cols);
    const std::vector<float> values = test_values(static_cast<size_t>(x.size() + up.size()), 5, 6.0f);
    auto fill = [&] {
      for (int64_t i = 0; i < x.size(); ++i) x[i] = values[static_cast<size_t>(i)];
      for (int64_t i = 0; i < up.size(); ++i) up[i] = values[static_cast<size_t>(x.size() + i)];
      for (int64_t i = 0; i < y.size(); ++i) y[i] = 77.0f;
    };
    for (Activation kind : kKinds) {
      fill();
      kernels().activation({x.data(), x_stride, up.data(), up_stride, y.data(), y_stride, rows, cols, kind});
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const double factor = up[r * up_stride + c], want = want_of(kind, x[r * x_stride + c]);
          const double bound = (bound_of(kind, x[r * x_stride + c], want) + kRounding * std::abs(want)) * 1.01;
          ASSERT_NEAR(y[r * y_stride + c], want * factor, bound * std::abs(factor)) << cols << " columns, " << c;
        }
        for (int64_t c = cols; c < y_stride && r + 1 < rows; ++c) ASSERT_EQ(y[r * y_stride + c], 77.0f);
      }
      kernels().activation({x.data(), x_stride, up.data(), up_stride, x.data(), x_stride, rows, cols, kind});
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(x[r * x_stride + c], y[r * y_stride + c]);
      fill();
      kernels().activation({x.data(), x_stride, up.data(), up_stride, up.data(), up_stride, rows, cols, kind});
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c) ASSERT_FALSE(std::isnan(up[r * up_stride + c]));
    }
  }
}

TEST_P(ActivationKernel, InfinityAndNan) {
  const float x[] = {kInf, kNan, -kInf, -0.0f, 0.0f};
  float y[5];
  for (Activation kind : kKinds) {
    kernels().activation({x, 5, nullptr, 0, y, 5, 1, 5, kind});
    EXPECT_EQ(y[0], kind == Activation::kTanh3 ? 3.0f : kind == Activation::kTanh ? 1.0f : kInf);
    EXPECT_TRUE(std::isnan(y[1]));
    if (kind == Activation::kTanh) EXPECT_EQ(y[2], -1.0f);
    else if (kind == Activation::kTanh3 || kind == Activation::kRelu)
      EXPECT_EQ(y[2], kind == Activation::kRelu ? 0.0f : -3.0f);
    else EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 0.0f);
    EXPECT_EQ(y[4], 0.0f);
  }
}

REDLINE_INSTANTIATE_PER_ISA(ActivationKernel);

}  // namespace
}  // namespace redline
