// layer_norm of every instruction set against float64.
#include "kernels/cpu/layer_norm.h"

#include "support/guarded_buffer.h"
#include "support/isa_test.h"
#include "support/special_values.h"

namespace redline {
namespace {

// 0, 1, around every vector width and four of them, a prime, a real model's.
const int64_t kLayerNormSizes[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 257, 3072};

using LayerNorm = IsaTest;

struct LayerNormCase {
  int64_t rows, cols, stride;
  std::vector<float> x;
  testing::GuardedBuffer<float> weight, bias, scale, shift;

  LayerNormCase(int64_t rows_, int64_t cols_, float mean)
      : rows(rows_), cols(cols_), stride(cols_ + 3), weight(cols_), bias(cols_), scale(cols_), shift(cols_) {
    x = test_values(static_cast<size_t>(rows * stride), static_cast<uint64_t>(cols + 1), 4.0f);
    for (float& v : x) v += mean;
    uint64_t seed = 100;
    for (auto* buffer : {&weight, &bias, &scale, &shift}) {
      const std::vector<float> v = test_values(static_cast<size_t>(cols), ++seed, 2.0f);
      for (int64_t c = 0; c < cols; ++c) (*buffer)[c] = v[static_cast<size_t>(c)];
    }
  }
  /// Bit 0: weight, 1: bias, 2: scale, 3: shift.
  LayerNormArgs args(int has, bool centred, float* y, int64_t y_stride) const {
    return {x.data(),
            stride,
            y,
            y_stride,
            rows,
            cols,
            has & 1 ? weight.data() : nullptr,
            has & 2 ? bias.data() : nullptr,
            has & 4 ? scale.data() : nullptr,
            has & 8 ? shift.data() : nullptr,
            1e-5f,
            centred};
  }
};

TEST_P(LayerNorm, AgreesWithReference) {
  for (int64_t cols : kLayerNormSizes)
    for (float mean : {0.0f, 30.0f})
      for (bool centred : {true, false})
        for (int has = 0; has < 16; ++has) {
          const LayerNormCase c(3, cols, mean);
          const int64_t y_stride = cols + 2;
          testing::GuardedBuffer<float> y(2 * y_stride + cols);
          for (int64_t i = 0; i < y.size(); ++i) y[i] = 77.0f;
          kernels().layer_norm(c.args(has, centred, y.data(), y_stride));
          for (int64_t r = 0; r < 3; ++r) {
            const float* x = &c.x[static_cast<size_t>(r * c.stride)];
            double centre = 0, magnitude = 0, squares = 0;
            for (int64_t i = 0; i < cols; ++i) magnitude += std::abs(double{x[i]}) / static_cast<double>(cols);
            for (int64_t i = 0; i < cols && centred; ++i) centre += double{x[i]} / static_cast<double>(cols);
            for (int64_t i = 0; i < cols; ++i) squares += std::pow(x[i] - centre, 2) / static_cast<double>(cols);
            const double inverse = 1 / std::sqrt(squares + double{1e-5f});
            // The narrowest vector has 16 partials, then a tail and a tree: so many roundings meet a term of a sum.
            const double sum_error = (static_cast<double>(cols) / 16 + 16 + 8) * kRounding;
            const double mean_error = centred ? sum_error * magnitude + kRounding * std::abs(centre) : 0;
            // Squares around a mean that is off by e are off by e^2, and each difference is rounded; the root halves
            // it.
            const double inverse_error =
                sum_error / 2 + mean_error * mean_error * inverse * inverse / 2 + 6 * kRounding;
            for (int64_t i = 0; i < cols; ++i) {
              const double norm = (x[i] - centre) * inverse;
              const double factor = (has & 1 ? double{c.weight[i]} : 1.0) * (has & 4 ? 1 + double{c.scale[i]} : 1.0);
              const double bias = has & 2 ? double{c.bias[i]} : 0.0, shift = has & 8 ? double{c.shift[i]} : 0.0;
              const double want = norm * factor + bias + shift;
              // 1 + s is rounded next to 1, however small the sum.
              const double factor_error = (has & 1 ? std::abs(double{c.weight[i]}) : 1.0) * 3 * kRounding;
              const double bound =
                  std::abs(factor) * (mean_error * inverse + std::abs(norm) * (inverse_error + 4 * kRounding)) +
                  factor_error * std::abs(norm) +
                  2 * kRounding * (std::abs(norm * factor) + std::abs(bias) + std::abs(shift));
              ASSERT_NEAR(y[r * y_stride + i], want, bound * 1.01)
                  << cols << " columns, has " << has << ", row " << r << ", column " << i;
            }
            if (r < 2) {
              ASSERT_EQ(y[r * y_stride + cols], 77.0f);
            }
          }
        }
}

TEST_P(LayerNorm, WorksInPlaceAndRowByRow) {
  const LayerNormCase c(5, 67, 1);
  std::vector<float> all(static_cast<size_t>(5 * c.stride)), in_place = c.x, single(67);
  kernels().layer_norm(c.args(15, true, all.data(), c.stride));
  LayerNormArgs a = c.args(15, true, in_place.data(), c.stride);
  a.x = in_place.data();
  kernels().layer_norm(a);
  for (int64_t r = 0; r < 5; ++r) {
    LayerNormArgs one = c.args(15, true, single.data(), 67);
    one.x += r * c.stride;
    one.rows = 1;
    kernels().layer_norm(one);
    for (int64_t i = 0; i < 67; ++i) {
      ASSERT_EQ(all[static_cast<size_t>(r * c.stride + i)], single[static_cast<size_t>(i)]);
      ASSERT_EQ(in_place[static_cast<size_t>(r * c.stride + i)], single[static_cast<size_t>(i)]);
    }
  }
}

TEST_P(LayerNorm, ConstantRowsGiveTheBiasAndNanStaysInItsRow) {
  const int64_t cols = 33;
  std::vector<float> x(3 * cols, 1.0f), y(3 * cols);
  x[5] = kNan;
  for (int64_t c = 0; c < cols; ++c) x[static_cast<size_t>(cols + c)] = c % 2 ? 1e30f : -1e30f;
  LayerNormArgs a = {};
  a.x = x.data(), a.y = y.data(), a.x_stride = a.y_stride = a.cols = cols, a.rows = 3, a.eps = 1e-6f, a.centred = true;
  kernels().layer_norm(a);
  for (int64_t c = 0; c < cols; ++c) {
    EXPECT_TRUE(std::isnan(y[static_cast<size_t>(c)]));
    EXPECT_EQ(y[static_cast<size_t>(cols + c)], 0.0f) << "squares overflow";
    EXPECT_EQ(y[static_cast<size_t>(2 * cols + c)], 0.0f);
  }
}

REDLINE_INSTANTIATE_PER_ISA(LayerNorm);

}  // namespace
}  // namespace redline
