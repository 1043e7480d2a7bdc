// An op against a formula that stands in its test: what the compiled op computes, on the CPU and on the emulated
// device, and the reference of its OpDef, which the tests of whole graphs trust.
#pragma once

#include "support/tile_harness.h"

namespace redline::test {

/// The numbers that a formula reads: inputs and weights by name in float64, and the sizes of the step.
struct FormulaInputs {
  std::map<std::string, HostTensor> tensors;
  SymbolValues sizes;

  /// `name` as [first axis, the others]; a vector is a column.
  double operator()(const std::string& name, int64_t row, int64_t col = 0) const {
    return tensors.at(name).row(row)[col];
  }
  int64_t operator[](Symbol symbol) const { return sizes[symbol]; }
};

/// All elements of y [rows, cols], in order.
using Formula = std::function<std::vector<double>(const FormulaInputs&, int64_t rows, int64_t cols)>;

/// Returns a formula that computes one element at a time.
inline Formula each(std::function<double(const FormulaInputs&, int64_t row, int64_t col)> element) {
  return [element = std::move(element)](const FormulaInputs& in, int64_t rows, int64_t cols) {
    std::vector<double> y;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) y.push_back(element(in, r, c));
    return y;
  };
}

inline HostTensor unpacked(const TensorView& view) {
  HostTensor t = {view.shape, std::vector<double>(static_cast<size_t>(view.num_elements()))};
  const int64_t rows = view.shape.size() > 1 ? t.rows() : 1, cols = view.num_elements() / std::max<int64_t>(rows, 1);
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t r = 0; r < rows; ++r) {
    unpack_row(view.dtype, static_cast<const uint8_t*>(view.data) + r * row_bytes(view.dtype, cols), row.data(), cols);
    std::copy(row.begin(), row.end(), t.data.begin() + r * cols);
  }
  return t;
}

/// Largest |got - want| over the largest |want|; infinite where got is NaN.
template <class T>
double error_of(const std::vector<T>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  if (got.size() != want.size()) return INFINITY;
  double largest = 0, worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - want[i]);
    if (!(error < INFINITY)) return INFINITY;
    largest = std::max(largest, std::abs(want[i]));
    worst = std::max(worst, error);
  }
  return largest > 0 ? worst / largest : worst;
}

/// References are loops in float64, like formulas: some thousand sums of random signs.
constexpr double kReferenceError = 1e-12;

/// Sums of float32 in the order of lanes: where a tolerance is for kernels that round less.
constexpr double kEmulatedError = 4e-6;

/// Builds the graph with `build` (which declares inputs and the output "y"), runs it at the sizes of each step on 1, 2
/// and 5 workers, and compares with `formula`. `tolerance` is relative to the largest value of the formula: the caller
/// derives it. All worker counts must give the same bits.
inline void expect_formula(const BuildGraph& build, const MakeInputs& inputs, const Formula& formula,
                           const std::vector<SymbolValues>& steps, double tolerance,
                           const CpuCompileOptions& options = {}) {
  uint64_t seed = 3;
  for (const SymbolValues& now : steps) {
    ++seed;
    std::string what;
    for (int i = 0; i < kNumSymbols; ++i)
      if (now.value[i]) what += fmt::format("{} {}, ", symbol_name(static_cast<Symbol>(i)), now.value[i]);
    SCOPED_TRACE(what);
    std::vector<double> want;
    std::vector<float> first;
    Numbers input_numbers(seed);
    const FormulaInputs in = {inputs(input_numbers, now), now};
    for (int workers : {1, 2, 5}) {
      Numbers numbers(7);
      GraphBuilder g("test");
      build(g, numbers);
      auto finished = g.finish();
      ASSERT_TRUE(finished.ok()) << finished.status().to_string();
      Graph graph = std::move(finished).value();
      if (workers == 1) {
        auto reference = Interpreter::make(graph);
        ASSERT_TRUE(reference.ok());
        auto expected = reference->run(in.tensors, now);
        ASSERT_TRUE(expected.ok()) << expected.status().to_string();
        const HostTensor& y = (*expected)["y"];
        FormulaInputs all = in;
        for (const ValueInfo& value : graph.values)
          if (value.kind == ValueKind::kWeight) all.tensors[value.name] = unpacked(value.weight.view);
        want = formula(all, y.rows(), y.cols());
        EXPECT_LE(error_of(y.data, want), kReferenceError) << "the reference";
        const bool is_last = &now == &steps.back();
        if (const auto got = run_emulated(graph, bounds_of(steps), now, in.tensors, std::ssize(want), is_last)) {
          EXPECT_LE(error_of(*got, want), std::max(tolerance, kEmulatedError)) << "the emulated device";
        }
      }
      Compiled c = Compiled::make(std::move(graph), workers, bounds_of(steps), options);
      StepContext step;
      step.sizes = now;
      for (int again = 0; again < 2; ++again) {  // counters must serve a second step as well as the first
        for (const auto& [name, tensor] : in.tensors) c.put(name.c_str(), tensor);
        ASSERT_TRUE(c.executor->step(step).ok());
      }
      const std::vector<float> got = c.get("y", static_cast<int64_t>(want.size()));
      EXPECT_LE(error_of(got, want), tolerance) << workers << " workers";
      if (first.empty()) first = got;
      EXPECT_TRUE(first.empty() || std::memcmp(first.data(), got.data(), got.size() * sizeof(float)) == 0)
          << workers << " workers give other bits than one";
    }
  }
}

/// Expects the output of `formula` for graphs whose one size is the number of rows.
inline void expect_formula(const BuildGraph& build,
                           const std::function<std::map<std::string, HostTensor>(Numbers&, int64_t rows)>& inputs,
                           const Formula& formula, const std::vector<int64_t>& row_counts, double tolerance) {
  std::vector<SymbolValues> steps = {};
  for (int64_t rows : row_counts) steps.push_back(sizes(rows, rows));
  expect_formula(
      build, [&](Numbers& n, const SymbolValues& now) { return inputs(n, now[Symbol::kTokens]); }, formula, steps,
      tolerance);
}

}  // namespace redline::test
