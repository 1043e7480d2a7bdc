// Products of activations that kernels round (dtype auto) in float64, with a bound of each element's error.
#pragma once

#include <cmath>
#include <map>

#include "support/graph_harness.h"
#include "support/random_weight.h"

namespace redline::test {

/// A value, and how far a kernel may be from it.
struct Bounded {
  double value = 0, error = 0;
};

/// Unit roundoffs: float32 has 24 significant bits, float16 11, bfloat16 8.
constexpr double kRoundoffF32 = 0x1p-24, kRoundoffF16 = 0x1p-11, kRoundoffBF16 = 0x1p-8;

/// How far elements of a row may be from x in a layout. Codes are int8 multiples of a scale, the largest |x| of the
/// elements that share it / 127: half a scale, and float32 for the division.
inline std::vector<double> rounding_errors(ActivationLayout layout, std::span<const double> x) {
  std::vector<double> errors(x.size(), 0);
  if (layout == ActivationLayout::kBf16Tiled)
    for (size_t k = 0; k < x.size(); ++k) errors[k] = std::abs(x[k]) * kRoundoffBF16;
  const int64_t group = layout == ActivationLayout::kI8Grouped ? kQ8Group
                        : layout == ActivationLayout::kI8Tiled ? kI8Chunk
                                                               : 0;
  if (group == 0) return errors;
  for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(group)) {
    const size_t end = std::min(begin + static_cast<size_t>(group), x.size());
    double largest = 0;
    for (size_t k = begin; k < end; ++k) largest = std::max(largest, std::abs(x[k]));
    for (size_t k = begin; k < end; ++k) errors[k] = largest / 254 * (1 + 127 * 4 * kRoundoffF32);
  }
  return errors;
}

/// Element n of x [w.k] times the transposed matrix, plus `bias`, for x in `layout`.
///
/// Each rounding of x counts with the |w| that it meets. Tiles of bfloat16 hold the weights rounded as well. Sums are
/// float32: K products and additions, each off by a unit roundoff of at most the sum of all magnitudes.
inline Bounded rounded_product(const testing::RandomWeight& w, ActivationLayout layout, const double* x, int64_t n,
                               double bias) {
  const std::vector<double> x_errors = rounding_errors(layout, {x, static_cast<size_t>(w.k)});
  const double w_roundoff = layout == ActivationLayout::kBf16Tiled && w.dtype != DType::kBF16 ? kRoundoffBF16 : 0;
  Bounded y = {bias, 0};
  double magnitude = std::abs(bias);
  for (int64_t k = 0; k < w.k; ++k) {
    const auto i = static_cast<size_t>(n * w.k + k);
    const double at = x[k], size = w.parts[i], dx = x_errors[static_cast<size_t>(k)];
    y.value += at * w.values[i];
    y.error += size * dx + w_roundoff * size * (std::abs(at) + dx);
    magnitude += size * (std::abs(at) + dx);
  }
  y.error += static_cast<double>(w.k + 4) * kRoundoffF32 * magnitude;
  return y;
}

/// The layout of x for a product with weights of `type` in a step of `rows`.
inline ActivationLayout layout_of(DType type, bool exact_f32, int64_t rows) {
  const CpuKernels* kernels = cpu_kernels().value();
  return CpuTarget(*kernels, exact_f32, 1).activation_layouts(type).for_rows(rows);
}

/// Every |got - value| is at most its error.
inline void expect_within(std::span<const float> got, std::span<const Bounded> want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_LE(std::abs(got[i] - want[i].value), want[i].error)
        << "element " << i << ": " << got[i] << ", not " << want[i].value;
}

/// Whether the compiled program has a stage of this op.
inline bool has_stage(const Program& program, const OpDef& op) {
  return std::any_of(program.stages.begin(), program.stages.end(),
                     [&](const StagePlan& stage) { return stage.op == op.name; });
}

}  // namespace redline::test
