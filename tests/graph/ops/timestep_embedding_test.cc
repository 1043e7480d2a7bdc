#include "graph/ops/timestep_embedding.h"

#include "support/op_formula.h"

namespace redline::test {
namespace {

Value timesteps(GraphBuilder& g) { return g.input("t", DType::kF32, {Dim(Symbol::kBatch)}); }
std::map<std::string, HostTensor> values(Numbers&, const SymbolValues& s) {
  HostTensor t = {{s[Symbol::kBatch]}, {0, 1000, 0.25, 999.5, 37, 1}};
  t.data.resize(static_cast<size_t>(s[Symbol::kBatch]));
  return {{"t", t}};
}

}  // namespace

TEST(TimestepEmbeddingOp, EqualsTheFormula) {
  for (const TimestepEmbeddingAttrs& a : {TimestepEmbeddingAttrs{256, true, 0, 10000, 1},
                                          {320, true, 0, 10000, 1},
                                          {6, false, 1, 10000, 1},
                                          {2, true, 0, 100, 0.5f}}) {
    // Frequency, product and scale are rounded, 4 times in all, in angles of up to 1000 * scale.
    const double tolerance = 4 * 6e-8 * 1000 * a.scale + 1e-7;
    const auto formula = each([=](const FormulaInputs& in, int64_t r, int64_t c) {
      const int64_t half = a.cols / 2, k = c % half;
      const double exponent = -static_cast<double>(k) / (static_cast<double>(half) - double{a.frequency_shift});
      const double angle = double{a.scale} * in("t", r) * std::pow(double{a.max_period}, exponent);
      return (c < half) == a.cosine_first ? std::cos(angle) : std::sin(angle);
    });
    expect_formula([&](GraphBuilder& g, Numbers&) { g.output("y", timestep_embedding(g, timesteps(g), a)); }, values,
                   formula, {image_sizes(0, 0), image_sizes(1, 0), image_sizes(6, 0)}, tolerance);
  }
}

// Expects the numbers that PyTorch 2.13 gives for diffusers' get_timestep_embedding of 8 columns (flip_sin_to_cos, no
// shift) at t = 981.5.
TEST(TimestepEmbeddingOp, RoundsAnglesAsFloat32) {
  GraphBuilder g("test");
  g.output("y", timestep_embedding(g, timesteps(g), {8, true, 0, 10000, 1}));
  Compiled c = Compiled::make(std::move(g.finish()).value(), 1, image_sizes(1, 0));
  c.put("t", {{1}, {981.5}});
  StepContext step;
  step.sizes = image_sizes(1, 0);
  ASSERT_TRUE(c.executor->step(step).ok());
  const std::vector<float> y = c.get("y", 8);
  const float want[] = {0.245178923f, -0.724407613f, -0.924824774f, 0.555776238f,
                        0.969477832f, -0.689371884f, -0.380393386f, 0.831331909f};
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(y[i], want[i], 1e-7) << i;
}

TEST(TimestepEmbeddingOp, WhatDoesNotFitIsRefused) {
  GraphBuilder g("test");
  timestep_embedding(g, timesteps(g), {7, true, 0, 10000, 1});
  EXPECT_EQ(g.finish().status().message(), "timestep_embedding: 7 columns, frequency shift 0, max period 10000");
}

}  // namespace redline::test
