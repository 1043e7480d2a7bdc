// Products of activations that kernels round (dtype auto) in float64, with a bound of each element's error.
#pragma once

#include <cmath>
#include <map>

#include "support/graph_harness.h"
#include "support/random_weight.h"
#include "support/x_steps.h"

namespace redline::test {

/// A value, and how far a kernel may be from it.
struct Bounded {
  double value = 0, error = 0;
};

/// Unit roundoffs: float32 has 24 significant bits, float16 11, bfloat16 8.
constexpr double kRoundoffF32 = 0x1p-24, kRoundoffF16 = 0x1p-11, kRoundoffBF16 = 0x1p-8;

/// How far elements of a row may be from x in a layout. Codes are int8 multiples of a step, which moves an element by
/// half of it. kI8Tiled: 127 steps are the largest |x| of a chunk. kI8Grouped: those of a group are, halved up to three
/// times for each 32 elements while their own largest fits (tensor/activation_layout.h).
inline std::vector<double> rounding_errors(ActivationLayout layout, std::span<const double> x) {
  std::vector<double> errors(x.size(), 0);
  const auto largest = [&](size_t begin, size_t count) {
    double most = 0;
    for (size_t k = begin; k < std::min(begin + count, x.size()); ++k) most = std::max(most, std::abs(x[k]));
    return most;
  };
  std::vector<double> tiled_group;
  if (layout == ActivationLayout::kI8TiledGroups) tiled_group = testing::tiled_group_steps(x);
  for (size_t k = 0; k < x.size(); ++k) {
    if (layout == ActivationLayout::kBf16Tiled) errors[k] = std::abs(x[k]) * kRoundoffBF16;
    double of_127_steps = 0;
    if (layout == ActivationLayout::kI8Tiled) of_127_steps = largest(k / kI8Chunk * kI8Chunk, kI8Chunk);
    if (layout == ActivationLayout::kI8TiledGroups) of_127_steps = 127 * tiled_group[k];
    if (layout == ActivationLayout::kI8Grouped)
      of_127_steps = std::max(largest(k / kQ8Group * kQ8Group, kQ8Group) / (1 << kQ8MaxShift),
                              2 * largest(k / kQ8Step * kQ8Step, kQ8Step));
    // Half a step, and float32 for the step and the quotient.
    errors[k] += of_127_steps / 254 * (1 + 127 * 4 * kRoundoffF32);
  }
  return errors;
}

/// A row of x in a layout, with a bound of how far each element is from what kernels read.
class RoundedRow {
 public:
  RoundedRow(ActivationLayout layout, const double* x, int64_t k)
      : layout_(layout), x_(x), errors_(rounding_errors(layout, {x, static_cast<size_t>(k)})) {}

  /// Element n of the row times the transposed matrix, plus `bias`, for x in `layout`.
  ///
  /// Each rounding of x counts with the |w| that it meets. Tiles of bfloat16 hold the weights rounded as well, with
  /// kI8Grouped the scales of small blocks are rounded (RandomWeight::moves), and with kI8TiledGroups the weights
  /// (requantized_moves). Sums are float32: K products and additions, each off by a unit roundoff of at most the sum of
  /// all magnitudes.
  Bounded product(const testing::RandomWeight& w, int64_t n, double bias) const {
    const double w_roundoff = layout_ == ActivationLayout::kBf16Tiled && w.dtype != DType::kBF16 ? kRoundoffBF16 : 0;
    Bounded y = {bias, 0};
    double magnitude = std::abs(bias);
    for (int64_t k = 0; k < w.k; ++k) {
      const auto i = static_cast<size_t>(n * w.k + k);
      const double at = x_[k], size = w.parts[i], dx = errors_[static_cast<size_t>(k)];
      y.value += at * w.values[i];
      const double dw = w_roundoff * size + (layout_ == ActivationLayout::kI8Grouped       ? w.moves[i]
                                             : layout_ == ActivationLayout::kI8TiledGroups ? w.requantized_moves(i)
                                                                                           : 0);
      y.error += size * dx + dw * (std::abs(at) + dx);
      magnitude += (size + dw) * (std::abs(at) + dx);
    }
    y.error += static_cast<double>(w.k + 4) * kRoundoffF32 * magnitude;
    return y;
  }

 private:
  ActivationLayout layout_;
  const double* x_;
  std::vector<double> errors_;
};

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

/// Returns true if the compiled program has a stage of this op.
inline bool has_stage(const Program& program, const OpDef& op) {
  return std::any_of(program.stages.begin(), program.stages.end(),
                     [&](const StagePlan& stage) { return stage.op == op.name; });
}

}  // namespace redline::test
