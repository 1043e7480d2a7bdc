// rms_norm, rope, silu_mul, add, exp: every instruction set against float64.
#include "support/isa_test.h"
#include "support/special_values.h"

namespace redline {
namespace {

// 0, 1, around every vector width and four of them, a prime, a real model's.
const int64_t kElementwiseSizes[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 257, 2048};

using RmsNorm = IsaTest;
using Rope = IsaTest;
using SiluMul = IsaTest;
using Add = IsaTest;
using Exp = IsaTest;

TEST_P(RmsNorm, AgreesWithReference) {
  for (int64_t cols : kElementwiseSizes) {
    const int64_t rows = 3;
    // One float in front: the kernel may not rely on alignment.
    const std::vector<float> x = test_values(rows * cols + 1, cols, 4.0f), w = test_values(cols + 1, cols + 1);
    std::vector<float> y(rows * cols + 2, 77.0f);
    kernels().rms_norm({x.data() + 1, w.data() + 1, y.data() + 1, rows, cols, 1e-5f});
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < cols; ++c) sum += std::pow(double{x[1 + r * cols + c]}, 2);
      for (int64_t c = 0; c < cols; ++c) {
        const double want = x[1 + r * cols + c] / std::sqrt(sum / static_cast<double>(cols) + double{1e-5f}) * w[1 + c];
        // The narrowest vector has 16 partials, then a tree; half of that error, plus mean, eps, root, inverse, 2
        // products.
        const double bound = ((static_cast<double>(cols) / 16 + 8) / 2 + 6) * kRounding;
        ASSERT_NEAR(y[1 + r * cols + c], want, bound * std::abs(want)) << cols << " columns, row " << r << ", " << c;
      }
    }
    EXPECT_EQ(y.front(), 77.0f);
    EXPECT_EQ(y.back(), 77.0f);
  }
}

TEST_P(RmsNorm, WorksInPlaceAndRowByRow) {
  const int64_t rows = 5, cols = 67;
  const std::vector<float> x = test_values(rows * cols, 1), w = test_values(cols, 2);
  std::vector<float> all(rows * cols), in_place = x, single(cols);
  kernels().rms_norm({x.data(), w.data(), all.data(), rows, cols, 1e-6f});
  kernels().rms_norm({in_place.data(), w.data(), in_place.data(), rows, cols, 1e-6f});
  EXPECT_EQ(all, in_place);
  for (int64_t r = 0; r < rows; ++r) {
    kernels().rms_norm({x.data() + r * cols, w.data(), single.data(), 1, cols, 1e-6f});
    EXPECT_EQ(single, std::vector<float>(all.begin() + r * cols, all.begin() + (r + 1) * cols));
  }
}

TEST_P(RmsNorm, KeepsNanInItsRowAndOverflowGivesZero) {
  const int64_t cols = 33;
  std::vector<float> x(3 * cols, 1.0f), w(cols, 1.0f), y(3 * cols);
  x[5] = kNan;
  for (int64_t c = 0; c < cols; ++c) x[cols + c] = 1e30f;
  kernels().rms_norm({x.data(), w.data(), y.data(), 3, cols, 0.0f});
  for (int64_t c = 0; c < cols; ++c) {
    EXPECT_TRUE(std::isnan(y[c]));
    EXPECT_EQ(y[cols + c], 0.0f);
    EXPECT_EQ(y[2 * cols + c], 1.0f);
  }
}

TEST_P(Rope, AgreesWithReference) {
  struct Shape {
    int64_t head_dim, rotary_dim;
  };
  for (Shape s : {Shape{2, 2}, {8, 8}, {34, 34}, {64, 64}, {128, 128}, {80, 32}, {17, 6}, {5, 0}, {63, 62}}) {
    const int64_t rows = 3, heads = 2, half = s.rotary_dim / 2, count = rows * heads * s.head_dim;
    const std::vector<float> x = test_values(count, s.head_dim), angle = test_values(rows * half + 1, 9, 3.0f);
    std::vector<float> c(angle.size()), sn(angle.size()), y(count);
    for (size_t i = 0; i < angle.size(); ++i) c[i] = std::cos(angle[i]), sn[i] = std::sin(angle[i]);
    kernels().rope({x.data(), y.data(), c.data(), sn.data(), rows, heads, s.head_dim, s.rotary_dim});
    std::vector<float> in_place = x;
    kernels().rope({in_place.data(), in_place.data(), c.data(), sn.data(), rows, heads, s.head_dim, s.rotary_dim});
    EXPECT_EQ(y, in_place);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = i / (heads * s.head_dim), d = i % s.head_dim;
      if (d >= s.rotary_dim) {
        ASSERT_EQ(y[i], x[i]);
        continue;
      }
      const bool first = d < half;
      const double other = x[first ? i + half : i - half];
      const double co = c[row * half + d % half], si = sn[row * half + d % half];
      // Two products and a sum round, each by at most kRounding of a magnitude below |x| + |other|.
      ASSERT_NEAR(y[i], first ? x[i] * co - other * si : x[i] * co + other * si,
                  3 * kRounding * (std::abs(x[i]) + std::abs(other)));
    }
  }
}

TEST_P(SiluMul, AgreesWithReference) {
  for (int64_t n : kElementwiseSizes) {
    const std::vector<float> gate = test_values(n + 1, n, 80.0f), up = test_values(n + 1, n + 1, 5.0f);
    std::vector<float> y(n + 2, 77.0f);
    kernels().silu_mul({gate.data() + 1, up.data() + 1, y.data() + 1, n});
    for (int64_t i = 0; i < n; ++i) {
      const double want = gate[i + 1] / (1 + std::exp(-double{gate[i + 1]})) * up[i + 1];
      // exp within 1.2e-7 (2 roundings), sum, division, product.
      ASSERT_NEAR(y[i + 1], want, 5 * kRounding * std::abs(want) + 1e-37) << gate[i + 1];
    }
    EXPECT_EQ(y.front(), 77.0f);
    EXPECT_EQ(y.back(), 77.0f);
  }
}

TEST_P(SiluMul, EdgesOfTheExponential) {
  const std::vector<float> gate = {0.0f, 1000.0f, -1000.0f, kNan, kInf, -104.0f, 1e-30f};
  const std::vector<float> up(gate.size(), 2.0f);
  std::vector<float> y(gate.size());
  kernels().silu_mul({gate.data(), up.data(), y.data(), static_cast<int64_t>(gate.size())});
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 2000.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_EQ(y[4], kInf);
  EXPECT_EQ(y[5], 0.0f);
  EXPECT_EQ(y[6], 1e-30f);
}

TEST_P(Add, IsExactAndMayOverwriteAnOperand) {
  for (int64_t n : kElementwiseSizes) {
    const std::vector<float> a = test_values(n + 1, n), b = test_values(n + 1, n + 7, 1e3f);
    std::vector<float> y(n + 2, 77.0f), over = a;
    kernels().add({a.data() + 1, b.data() + 1, y.data() + 1, n});
    kernels().add({over.data() + 1, b.data() + 1, over.data() + 1, n});
    for (int64_t i = 1; i <= n; ++i) {
      ASSERT_EQ(y[i], a[i] + b[i]);
      ASSERT_EQ(over[i], y[i]);
    }
    EXPECT_EQ(y.front(), 77.0f);
    EXPECT_EQ(y.back(), 77.0f);
  }
}

TEST_P(Exp, HoldsItsBoundOverTheWholeRange) {
  // Every 997th float from 0 to 110 and its negative: two million of them.
  std::vector<float> x;
  for (uint32_t bits = 0; bits <= __builtin_bit_cast(uint32_t, 110.0f); bits += 997) {
    x.push_back(__builtin_bit_cast(float, bits));
    x.push_back(-x.back());
  }
  std::vector<float> y(x.size());
  kernels().exp({x.data(), y.data(), static_cast<int64_t>(x.size())});
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(double{x[i]});
    if (want > std::numeric_limits<float>::max()) {
      ASSERT_TRUE(y[i] == kInf || (want < 3.4029e38 && y[i] > 3.4028e38f)) << x[i];
    } else if (want >= std::numeric_limits<float>::min()) {
      const double error = std::abs(y[i] - want) / want;
      worst = std::max(worst, error);
      ASSERT_LE(error, 1.2e-7) << x[i];
    } else {
      // Subnormal: the same relative error, and one rounding to the last place, 2^-149.
      ASSERT_NEAR(y[i], want, 0x1p-149) << x[i];
    }
  }
  RecordProperty("worst_relative_error", fmt::format("{:.3g}", worst));
}

TEST_P(Exp, SpecialValuesAndTails) {
  const std::vector<float> x = {-kInf, kInf, kNan, 0.0f, -0.0f, 88.8f, -104.1f, -1e30f, 1e30f, 88.7f, -87.0f};
  const std::vector<float> want = {0, kInf, kNan, 1, 1, kInf, 0, 0, kInf, std::exp(88.7f), std::exp(-87.0f)};
  for (size_t n = 0; n <= x.size(); ++n) {
    std::vector<float> y(n + 1, 77.0f);
    kernels().exp({x.data(), y.data(), static_cast<int64_t>(n)});
    for (size_t i = 0; i < n; ++i) {
      if (std::isnan(want[i])) {
        EXPECT_TRUE(std::isnan(y[i]));
      } else {
        EXPECT_FLOAT_EQ(y[i], want[i]) << x[i];
      }
    }
    EXPECT_EQ(y[n], 77.0f);
  }
}

REDLINE_INSTANTIATE_PER_ISA(Exp);
REDLINE_INSTANTIATE_PER_ISA(RmsNorm);
REDLINE_INSTANTIATE_PER_ISA(Rope);
REDLINE_INSTANTIATE_PER_ISA(SiluMul);
REDLINE_INSTANTIATE_PER_ISA(Add);

}  // namespace
}  // namespace redline
