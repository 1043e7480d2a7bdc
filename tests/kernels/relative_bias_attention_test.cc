// relative_bias_attention: every instruction set against float64.
#include "kernels/cpu/attention/relative_bias_attention.h"

#include "support/guarded_buffer.h"
#include "support/isa_test.h"

namespace redline {
namespace {

using RelativeBiasAttention = IsaTest;

struct RelativeBiasAttentionCase {
  int64_t rows, keys, head_dim;
  int64_t first_row = 0;
  float size = 1;  ///< of q and k
};

/// Operands that end at unmapped pages, rows further apart than they are long.
struct Operands {
  int64_t stride, before, distances;
  testing::GuardedBuffer<float> q, k, v, y, bias;
  std::vector<float> scratch;

  explicit Operands(const RelativeBiasAttentionCase& c)
      : stride(c.head_dim + 3), before(c.first_row + c.rows), distances(before + c.keys), q(room(c.rows, c)),
        k(room(c.keys, c)), v(room(c.keys, c)), y(room(c.rows, c)), bias(distances), scratch(kScratchBytes / 4) {
    fill(q, 1, c.size), fill(k, 2, c.size), fill(v, 3, 1), fill(bias, 4, 2);
    for (int64_t i = 0; i < y.size(); ++i) y[i] = 77;
  }
  int64_t room(int64_t rows, const RelativeBiasAttentionCase& c) const {
    return rows > 0 ? (rows - 1) * stride + c.head_dim : 0;
  }
  static void fill(testing::GuardedBuffer<float>& buffer, uint64_t seed, float size) {
    const std::vector<float> values = test_values(static_cast<size_t>(buffer.size()), seed, size);
    for (int64_t i = 0; i < buffer.size(); ++i) buffer[i] = values[static_cast<size_t>(i)];
  }
  /// Returns the bias of key p for the row at place t.
  float bias_of(int64_t p, int64_t t) const { return bias[before + p - t]; }
  RelativeBiasAttentionArgs args(const RelativeBiasAttentionCase& c, float scale) {
    return {q.data(),
            stride,
            k.data(),
            v.data(),
            stride,
            y.data(),
            stride,
            c.rows,
            c.first_row,
            c.keys,
            c.head_dim,
            scale,
            bias.data() + before,
            scratch.data()};
  }
};

void check_relative_bias_attention(const CpuKernels& kernels, const RelativeBiasAttentionCase& c) {
  Operands o(c);
  const float scale = 0.75f;
  kernels.relative_bias_attention(o.args(c, scale));
  for (int64_t r = 0; r < c.rows; ++r) {
    std::vector<double> weight;
    double most = -INFINITY, sum = 0, size = 0;
    for (int64_t p = 0; p < c.keys; ++p) {
      double dot = 0, all = 0;
      for (int64_t d = 0; d < c.head_dim; ++d) {
        const double x = double{o.q[r * o.stride + d]} * double{o.k[p * o.stride + d]};
        dot += x, all += std::abs(x);
      }
      weight.push_back(dot * double{scale} + double{o.bias_of(p, c.first_row + r)});
      most = std::max(most, weight.back());
      size = std::max(size, all * double{scale} + 2);
    }
    for (double& w : weight) sum += w = std::exp(w - most);
    // A score is off by head_dim + 2 roundings of the sum of its terms' sizes, which enters each weight twice (once
    // through the total); an exponential, a weight and the sum over keys by keys + 10 more.
    const double bound =
        kRounding * (2 * static_cast<double>(c.head_dim + 2) * size + static_cast<double>(c.keys) + 10);
    for (int64_t d = 0; d < c.head_dim; ++d) {
      double want = 0, all = 0;
      for (int64_t p = 0; p < c.keys; ++p) {
        const double x = weight[static_cast<size_t>(p)] / sum * double{o.v[p * o.stride + d]};
        want += x, all += std::abs(x);
      }
      ASSERT_NEAR(o.y[r * o.stride + d], want, bound * all) << c.rows << " rows from " << c.first_row << ", " << c.keys
                                                            << " keys of " << c.head_dim << ": row " << r << ", " << d;
    }
    for (int64_t d = c.head_dim; r + 1 < c.rows && d < o.stride; ++d) ASSERT_EQ(o.y[r * o.stride + d], 77);
  }
}

TEST_P(RelativeBiasAttention, AgreesWithReference) {
  for (const int64_t keys : {0, 1, 3, 15, 16, 17, 31, 64, 65, 127, 128, 129, 257})
    check_relative_bias_attention(kernels(), {7, keys, 64});
  for (const int64_t head_dim : {1, 3, 7, 8, 9, 15, 16, 17, 63, 65, 80, 511, 512})
    check_relative_bias_attention(kernels(), {5, 37, head_dim});
  for (const int64_t rows : {0, 1, 2, 3, 4, 5, 6, 11, 12, 13})
    check_relative_bias_attention(kernels(), {rows, 150, 40});
  check_relative_bias_attention(kernels(), {19, 300, 64, 281});
  check_relative_bias_attention(kernels(), {520, 140, 8});  // more rows than share a copy of keys
}

TEST_P(RelativeBiasAttention, LargeScoresDoNotOverflow) {
  check_relative_bias_attention(kernels(), {5, 200, 64, 0, 20});
}

TEST_P(RelativeBiasAttention, ARowHasTheSameBitsInAnyCall) {
  const RelativeBiasAttentionCase all = {23, 300, 33};
  Operands whole(all), part(all);
  kernels().relative_bias_attention(whole.args(all, 1));
  for (int64_t r = 0, next; r < all.rows; r = next) {
    next = std::min(all.rows, r + 1 + r % 4);
    RelativeBiasAttentionArgs a = part.args(all, 1);
    a.q += r * part.stride, a.y += r * part.stride;
    a.first_row = r, a.rows = next - r;
    kernels().relative_bias_attention(a);
  }
  for (int64_t i = 0; i < whole.y.size(); ++i) ASSERT_EQ(whole.y[i], part.y[i]) << i;
}

TEST_P(RelativeBiasAttention, ANanStaysInItsRow) {
  const RelativeBiasAttentionCase c = {9, 140, 20};
  Operands o(c), clean(c);
  o.q[4 * o.stride + 2] = std::numeric_limits<float>::quiet_NaN();
  kernels().relative_bias_attention(o.args(c, 1));
  kernels().relative_bias_attention(clean.args(c, 1));
  for (int64_t r = 0; r < c.rows; ++r)
    for (int64_t d = 0; d < c.head_dim; ++d) {
      const float y = o.y[r * o.stride + d];
      if (r == 4) ASSERT_TRUE(std::isnan(y));
      else ASSERT_EQ(y, clean.y[r * o.stride + d]);
    }
}

REDLINE_INSTANTIATE_PER_ISA(RelativeBiasAttention);

}  // namespace
}  // namespace redline
