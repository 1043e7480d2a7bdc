// Runs a small graph both ways: compiled for some workers, and by the references in float64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <random>
#include <tuple>

#include "backends/cpu/executor.h"
#include "backends/cpu/lowering.h"
#include "runtime/interpreter.h"
#include "support/image_sizes.h"

namespace redline::test {

inline const Dim kBatch = Symbol::kBatch, kImage = Symbol::kImageTokens, kText = Symbol::kTextTokens;
inline const Dim kH = testing::kHeight, kW = testing::kWidth, kH2 = extent_symbol("height/2"),
                 kW2 = extent_symbol("width/2");

/// Random float32 numbers of about unit size; owns the data behind the weights it makes.
class Numbers {
 public:
  explicit Numbers(uint64_t seed = 1) : random_(seed) {}
  std::vector<float> vector(int64_t n, float size = 1) {
    std::normal_distribution<float> normal(0, size);
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = normal(random_);
    return v;
  }
  WeightSource weight(std::vector<int64_t> shape, float size = 1) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    kept_.push_back(vector(n, size));
    WeightSource source;
    source.view = {DType::kF32, std::move(shape), kept_.back().data()};
    return source;
  }
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  std::mt19937_64& random() { return random_; }

 private:
  std::mt19937_64 random_;
  std::list<std::vector<float>> kept_;
};

inline SymbolValues sizes(int64_t tokens, int64_t logit_rows = 1) {
  SymbolValues s;
  s[Symbol::kTokens] = tokens;
  s[Symbol::kSequences] = 1;
  s[Symbol::kLogitRows] = logit_rows;
  return s;
}

/// Returns the sizes of a step of a denoiser. image_tokens and text_tokens are rows of one item of the batch.
inline SymbolValues image_sizes(int64_t batch, int64_t image_tokens, int64_t text_tokens = 0) {
  SymbolValues s;
  s[Symbol::kBatch] = batch;
  s[Symbol::kImageTokens] = image_tokens;
  s[Symbol::kTextTokens] = text_tokens;
  return s;
}
/// The largest of each symbol.
inline SymbolValues bounds_of(const std::vector<SymbolValues>& steps) {
  SymbolValues most;
  for (const SymbolValues& step : steps)
    for (int i = 0; i < kNumSymbols; ++i) most.value[i] = std::max(most.value[i], step.value[i]);
  return most;
}

/// How many ops of one kind a graph has.
inline int count(const Graph& graph, const OpDef& def) {
  int n = 0;
  for (const Op& op : graph.ops) n += op.def == &def;
  return n;
}

/// The team of so many workers that all tests of a process share: most of the time of a small test went into threads
/// and scratch memory of its own.
inline WorkerTeam* shared_team(int workers, const CpuKernels& kernels) {
  using Hook = void (*)();
  static std::map<std::tuple<int, Hook, Hook>, std::unique_ptr<WorkerTeam>> teams;
  std::unique_ptr<WorkerTeam>& team = teams[{workers, kernels.worker_begin, kernels.worker_end}];
  if (!team) team = std::make_unique<WorkerTeam>(workers, std::pair{kernels.worker_begin, kernels.worker_end});
  return team.get();
}

/// A graph compiled for `workers`.
struct Compiled {
  WorkerTeam* team = nullptr;
  std::unique_ptr<Executor> executor;
  Program* program = nullptr;  ///< the executor's, for tests that change it

  CpuProgram& code() const { return CpuProgram::of(*program); }

  static Compiled make(Graph graph, int workers, SymbolValues bounds, CpuCompileOptions options = {},
                       ExecutorOptions run = {}) {
    Compiled c;
    if (!options.kernels) {
      auto kernels = cpu_kernels();
      EXPECT_TRUE(kernels.ok());
      options.kernels = *kernels;
    }
    options.bounds = bounds;
    c.team = shared_team(workers, *options.kernels);
    auto program = compile_cpu(std::move(graph), options, *c.team);
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    c.executor = std::make_unique<Executor>(std::move(program).value(), *c.team, run);
    c.program = const_cast<Program*>(c.executor->program());
    // NaNs, as another program on the team may leave them.
    const int64_t bytes = kScratchBytes + c.code().buffer_bytes + 4096;
    auto scratch = c.team->scratch(bytes);
    EXPECT_TRUE(scratch.ok()) << scratch.status().to_string();
    if (scratch.ok()) std::memset(*scratch, 0xff, static_cast<size_t>(bytes * c.team->size()));
    return c;
  }
  void put(const char* name, const HostTensor& t) {
    const Program::Port* port = program->find_input(name);
    ASSERT_NE(port, nullptr) << name;
    for (size_t i = 0; i < t.data.size(); ++i) {
      if (port->dtype == DType::kI32)
        static_cast<int32_t*>(executor->host_input(name))[i] = static_cast<int32_t>(t.data[i]);
      else static_cast<float*>(executor->host_input(name))[i] = static_cast<float>(t.data[i]);
    }
  }
  std::vector<float> get(const char* name, int64_t count) const {
    const auto* data = static_cast<const float*>(executor->host_output(name));
    return {data, data + count};
  }
};

inline HostTensor matrix(Numbers& numbers, int64_t rows, int64_t cols) {
  const std::vector<float> v = numbers.vector(rows * cols);
  return {{rows, cols}, {v.begin(), v.end()}};
}
inline HostTensor integers(const std::vector<int64_t>& values) {
  return {{static_cast<int64_t>(values.size())}, {values.begin(), values.end()}};
}

using BuildGraph = std::function<void(GraphBuilder&, Numbers&)>;
using MakeInputs = std::function<std::map<std::string, HostTensor>(Numbers&, const SymbolValues&)>;

/// Builds the graph with `build` (which declares inputs and the output "y"), runs it at the sizes of each step on 1, 2
/// and 5 workers, and compares with the references. `tolerance` is relative to the largest value of the reference: the
/// caller derives it. All worker counts must give the same bits.
inline void expect_like_reference(const BuildGraph& build, const MakeInputs& inputs,
                                  const std::vector<SymbolValues>& steps, double tolerance,
                                  const CpuCompileOptions& options = {}) {
  uint64_t seed = 3;
  for (const SymbolValues& now : steps) {
    ++seed;
    std::string what;
    for (int i = 0; i < kNumSymbols; ++i)
      if (now.value[i]) what += fmt::format("{} {}, ", symbol_name(static_cast<Symbol>(i)), now.value[i]);
    std::vector<float> first;
    HostTensor want;
    Numbers input_numbers(seed);
    const auto in = inputs(input_numbers, now);
    for (int workers : {1, 2, 5}) {
      Numbers numbers(7);
      GraphBuilder g("test");
      build(g, numbers);
      auto finished = g.finish();
      ASSERT_TRUE(finished.ok()) << finished.status().to_string();
      Graph graph = std::move(finished).value();
      if (workers == 1) {
        auto interpreter = Interpreter::make(graph);
        ASSERT_TRUE(interpreter.ok());
        auto expected = interpreter->run(in, now);
        ASSERT_TRUE(expected.ok()) << expected.status().to_string();
        want = std::move((*expected)["y"]);
      }
      Compiled c = Compiled::make(std::move(graph), workers, bounds_of(steps), options);
      StepContext step;
      step.sizes = now;
      for (int again = 0; again < 2; ++again) {  // counters must serve a second step as well as the first
        for (const auto& [name, tensor] : in) c.put(name.c_str(), tensor);
        ASSERT_TRUE(c.executor->step(step).ok());
      }
      const std::vector<float> got = c.get("y", static_cast<int64_t>(want.data.size()));
      double largest = 0, worst = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        largest = std::max(largest, std::abs(want.data[i]));
        worst = std::max(worst, std::abs(want.data[i] - static_cast<double>(got[i])));
        ASSERT_FALSE(std::isnan(got[i])) << "element " << i;
      }
      EXPECT_LE(worst, tolerance * largest) << what << "workers " << workers;
      if (first.empty()) first = got;
      EXPECT_TRUE(first.empty() || std::memcmp(first.data(), got.data(), got.size() * sizeof(float)) == 0)
          << what << workers << " workers give other bits than one";
    }
  }
}

/// Expects outputs like those of the reference for graphs whose one size is the number of rows.
inline void expect_like_reference(
    const BuildGraph& build, const std::function<std::map<std::string, HostTensor>(Numbers&, int64_t rows)>& inputs,
    const std::vector<int64_t>& row_counts, double tolerance) {
  std::vector<SymbolValues> steps = {};
  for (int64_t rows : row_counts) steps.push_back(sizes(rows, rows));
  expect_like_reference(
      build, [&](Numbers& n, const SymbolValues& now) { return inputs(n, now[Symbol::kTokens]); }, steps, tolerance);
}

}  // namespace redline::test
