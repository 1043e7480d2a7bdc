#include "graph/ops/relative_bias_attention.h"

#include "support/op_formula.h"

namespace redline::test {
namespace {

SymbolValues text(int64_t batch, int64_t tokens) {
  SymbolValues s;
  s[Symbol::kBatch] = batch;
  s[Symbol::kTextTokens] = tokens;
  return s;
}

// y[i, t, h] = sum_p softmax_p(scale q[i, t, h] . k[i, p, h] + table[bucket(p - t), h]) v[i, p, h] over the keys that
// item i has; buckets have a test of their own.
Formula bias_attention_formula(const RelativeBiasAttentionAttrs& a, bool has_lengths) {
  return [=](const FormulaInputs& in, int64_t rows, int64_t cols) {
    const int64_t tokens = in[Symbol::kTextTokens];
    const HostTensor &q = in.tensors.at("q"), &k = in.tensors.at("k"), &v = in.tensors.at("v");
    std::vector<double> y(static_cast<size_t>(rows * cols));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t h = 0; h < a.num_heads; ++h) {
        const int64_t first = r / tokens * tokens, begin = h * a.head_dim;
        const auto given = has_lengths ? static_cast<int64_t>(in("lengths", r / tokens)) : tokens;
        const int64_t keys = std::clamp<int64_t>(given, 0, tokens);
        std::vector<double> weights;
        double sum = 0;
        for (int64_t p = 0; p < keys; ++p) {
          double dot = 0;
          for (int64_t d = begin; d < begin + a.head_dim; ++d) dot += q.row(r)[d] * k.row(first + p)[d];
          const int64_t bucket = relative_bucket(first + p - r, a.num_buckets, a.max_distance);
          weights.push_back(std::exp(double{a.scale} * dot + in("table", bucket, h)));
          sum += weights.back();
        }
        for (int64_t p = 0; p < keys; ++p)
          for (int64_t d = begin; d < begin + a.head_dim; ++d)
            y[static_cast<size_t>(r * cols + d)] += weights[static_cast<size_t>(p)] / sum * v.row(first + p)[d];
      }
    return y;
  };
}

void expect_attention(int64_t heads, int64_t head_dim, RelativeBiasAttentionAttrs attrs, bool lengths,
                      const std::vector<SymbolValues>& steps) {
  const Dim batch(Symbol::kBatch), tokens(Symbol::kTextTokens);
  attrs.num_heads = heads;
  attrs.head_dim = head_dim;
  // Roundings of random sign: scores as large as the root of head_dim and off by that many roundings of it, sums over
  // keys by the root of their number.
  const double tolerance = 6e-8 * (8 + 4 * static_cast<double>(head_dim));
  expect_formula(
      [&](GraphBuilder& g, Numbers& n) {
        const Shape shape = {batch * tokens, heads * head_dim};
        const Value q = g.input("q", DType::kF32, shape), k = g.input("k", DType::kF32, shape),
                    v = g.input("v", DType::kF32, shape), l = g.input("lengths", DType::kI32, {batch});
        const Value table = g.weight("table", n.weight({attrs.num_buckets, heads}));
        g.output("y", relative_bias_attention(g, q, k, v, table, batch, tokens, attrs, lengths ? l : Value{}));
      },
      [&](Numbers& n, const SymbolValues& now) {
        const int64_t rows = now[Symbol::kBatch] * now[Symbol::kTextTokens];
        std::map<std::string, HostTensor> in;
        for (const char* name : {"q", "k", "v"}) in[name] = matrix(n, rows, heads * head_dim);
        std::vector<int64_t> given;
        for (int64_t i = 0; i < now[Symbol::kBatch]; ++i)
          given.push_back(i == 1 ? 0 : i == 2 ? 9999 : 1 + n.below(now[Symbol::kTextTokens]));
        in["lengths"] = integers(given);
        return in;
      },
      bias_attention_formula(attrs, lengths), steps, tolerance);
}

TEST(RelativeBiasAttentionOp, EqualsTheFormula) {
  const std::vector<SymbolValues> steps = {text(1, 0), text(0, 4), text(1, 1), text(1, 16), text(2, 17), text(3, 150)};
  for (const bool lengths : {false, true}) {
    expect_attention(3, 16, {}, lengths, steps);
    expect_attention(4, 33, {.num_buckets = 8, .max_distance = 20, .scale = 0.3f}, lengths, steps);
  }
}

// The first distance of each bucket of keys before the query, by transformers 5.23 in float32.
TEST(RelativeBiasAttentionOp, BucketsAreThoseOfT5) {
  struct Case {
    int64_t num_buckets, max_distance;
    std::vector<int64_t> begins;
  };
  const Case cases[] = {{32, 128, {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91}},
                        {8, 20, {0, 1, 2, 7}},
                        {16, 64, {0, 1, 2, 3, 4, 8, 16, 32}},
                        {32, 256, {0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 20, 30, 46, 70, 108, 166}},
                        {12, 100, {0, 1, 2, 3, 10, 32}}};
  for (const Case& c : cases) {
    const auto half = static_cast<int64_t>(c.begins.size());
    int64_t bucket = 0;
    for (int64_t distance = 0; distance < 5000; ++distance) {
      if (bucket + 1 < half && distance == c.begins[static_cast<size_t>(bucket) + 1]) ++bucket;
      ASSERT_EQ(relative_bucket(-distance, c.num_buckets, c.max_distance), bucket) << distance;
      ASSERT_EQ(relative_bucket(distance, c.num_buckets, c.max_distance), distance > 0 ? half + bucket : 0);
    }
  }
}

TEST(RelativeBiasAttentionOp, WhatDoesNotFitIsRefused) {
  const Dim batch(Symbol::kBatch), tokens(Symbol::kTextTokens);
  auto message = [&](std::vector<int64_t> table, RelativeBiasAttentionAttrs attrs) {
    Numbers n;
    GraphBuilder g("test");
    const Value x = g.input("x", DType::kF32, {batch * tokens, 48});
    EXPECT_FALSE(relative_bias_attention(g, x, x, x, g.weight("bias", n.weight(std::move(table))), batch, tokens, attrs)
                     .valid());
    return g.finish().status().message();
  };
  EXPECT_EQ(message({32, 3}, {.num_heads = 3, .head_dim = 8}),
            "relative_bias_attention: x is [batch*text_tokens, 48], not f32 [batch*text_tokens, 24]");
  EXPECT_EQ(message({3, 32}, {.num_heads = 3, .head_dim = 16}),
            "relative_bias_attention: bias is [3, 32], not a weight [32, 3]");
  EXPECT_EQ(message({32, 3}, {.num_heads = 1, .head_dim = 1024}),
            "relative_bias_attention: 1 heads of 1024 elements; heads have 1 to 512");
  EXPECT_EQ(message({32, 3}, {.num_heads = 3, .head_dim = 16, .max_distance = 8}),
            "relative_bias_attention: 32 buckets up to a distance of 8; at least 4 are needed, and a quarter of them "
            "below the "
            "distance");
}

}  // namespace
}  // namespace redline::test
