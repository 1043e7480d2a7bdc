// Runs a small graph on the emulated device, stage by stage and as persistent steps, and by the references in float64.
#pragma once

#include "backends/tiles/tile_lowering.h"
#include "backends/tiles/tile_runner.h"
#include "graph/pass.h"
#include "support/graph_harness.h"
#include "support/test_device.h"

namespace redline::test {

struct TileOptions {
  bool exact_f32 = true;
  int multiprocessors = 3;
  bool persistent = false;
  bool reuse_memory = true;
  emu::MachineOptions machine;
  int64_t memory_bytes = 0;  ///< of the device; 0: enough
  bool has_library = false;
  int64_t own_rows = kOwnRows;
  bool refuses_persistent = false;
  double hang_seconds = 60;
  std::function<void(const std::string&)> on_notice;
  Timeline* timeline = nullptr;
  int64_t staging_bytes = 0;  ///< of the device; 0: as EmulatedDeviceOptions
};

/// A graph compiled for the emulated device.
struct TileCompiled {
  std::unique_ptr<WorkerTeam> team;
  std::shared_ptr<OpenDevice> device;
  std::unique_ptr<TileRunner> runner;
  Status status;

  static TileCompiled make(Graph graph, const SymbolValues& bounds, const TileOptions& options = {}) {
    TileCompiled c;
    c.team = std::make_unique<WorkerTeam>(2);
    emu::EmulatedDeviceOptions device = {.multiprocessors = options.multiprocessors,
                                         .team = c.team.get(),
                                         .machine = options.machine,
                                         .memory_bytes = options.memory_bytes,
                                         .has_library = options.has_library,
                                         .refuses_persistent = options.refuses_persistent};
    if (options.staging_bytes > 0) device.staging_bytes = options.staging_bytes;
    c.device = open_test_device(device);
    c.device->set_own_rows(options.own_rows);
    const TileCompileOptions compile = {
        .bounds = bounds, .exact_f32 = options.exact_f32, .reuse_memory = options.reuse_memory};
    c.status = run_passes(graph);
    if (!c.status.ok()) return c;
    auto program = compile_tiles(std::move(graph), compile, c.device, *c.team);
    c.status = program.status();
    if (!program.ok()) return c;
    // The emulated device has all kernels as tasks.
    const bool can_persist =
        test_device() == "emu" || choose_steps(StepMode::kAuto, *program).value().persistent_rows > 0;
    c.runner = std::make_unique<TileRunner>(
        std::move(program).value(),
        TileRunnerOptions{.steps = {options.persistent && can_persist ? int64_t{1} << 30 : 0, ""},
                          .hang_seconds = options.hang_seconds,
                          .on_notice = options.on_notice,
                          .timeline = options.timeline,
                          .device_name = test_device()});
    return c;
  }
  void set_machine(const emu::MachineOptions& options) { emu::set_machine_options(device->table(), options); }
};

/// Writes an input of any runner.
inline void put(Runner& runner, const Graph& graph, const std::string& name, const HostTensor& t) {
  const DType dtype = graph.value(graph.find_input(name)).dtype;
  void* to = runner.host_input(name);
  ASSERT_NE(to, nullptr) << name;
  for (size_t i = 0; i < t.data.size(); ++i) {
    if (dtype == DType::kI32) static_cast<int32_t*>(to)[i] = static_cast<int32_t>(t.data[i]);
    else static_cast<float*>(to)[i] = static_cast<float>(t.data[i]);
  }
}
inline std::vector<float> get(const Runner& runner, const std::string& name, int64_t count) {
  const auto* data = static_cast<const float*>(runner.host_output(name));
  return {data, data + count};
}

/// Output "y" of a graph on the emulated device, in float32 unless `exact_f32` is false: a launch for each stage, or
/// with `persistent` one for the step, with the same bits. nullopt: the device lacks an op of the graph; or the tests
/// run for an instruction set of the CPU.
inline std::optional<std::vector<float>> run_emulated(const Graph& graph, const SymbolValues& bounds,
                                                      const SymbolValues& now,
                                                      const std::map<std::string, HostTensor>& inputs, int64_t count,
                                                      bool persistent, bool exact_f32 = true) {
  if (std::getenv("REDLINE_CPU_ISA")) return std::nullopt;
  for (const Op& op : graph.ops)
    if (!find_tile_lowering(op.def)) return std::nullopt;
  std::optional<std::vector<float>> first;
  for (const bool in_one : {false, true}) {
    if (in_one && !persistent) continue;
    TileCompiled c = TileCompiled::make(graph, bounds, {.exact_f32 = exact_f32, .persistent = in_one});
    EXPECT_TRUE(c.status.ok()) << c.status.to_string();
    if (!c.status.ok()) return std::nullopt;
    StepContext step;
    step.sizes = now;
    for (int again = 0; again < (in_one ? 2 : 1); ++again) {  // counters must serve a second step as well as the first
      for (const auto& [name, tensor] : inputs) put(*c.runner, graph, name, tensor);
      const Status status = c.runner->step(step);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    std::vector<float> got = get(*c.runner, "y", count);
    if (!first) first = std::move(got);
    else
      EXPECT_TRUE(got.empty() || std::memcmp(first->data(), got.data(), got.size() * sizeof(float)) == 0)
          << "one launch gives other bits than many";
  }
  return first;
}

/// Builds the graph (inputs, and the output "y"), runs it at each number of rows in both ways of the tile runner, and
/// at the last one with another number of multiprocessors too, and compares with the references. `tolerance` is
/// relative to the largest value of the reference. All ways must give the same bits.
inline void expect_tiles_like_reference(
    const BuildGraph& build, const std::function<std::map<std::string, HostTensor>(Numbers&, int64_t rows)>& inputs,
    const std::vector<int64_t>& row_counts, double tolerance, bool exact_f32 = true) {
  const int64_t most = *std::max_element(row_counts.begin(), row_counts.end());
  uint64_t seed = 11;
  for (const int64_t rows : row_counts) {
    ++seed;
    std::vector<float> first;
    for (const auto& [persistent, multiprocessors] : {std::pair{false, 3}, {true, 3}, {true, 7}}) {
      if (multiprocessors == 7 && rows != row_counts.back()) continue;
      Numbers numbers(7);
      GraphBuilder g("test");
      build(g, numbers);
      auto finished = g.finish();
      ASSERT_TRUE(finished.ok()) << finished.status().to_string();
      const Graph graph = std::move(finished).value();
      Numbers input_numbers(seed);
      const auto in = inputs(input_numbers, rows);
      const SymbolValues now = sizes(rows, rows);
      auto interpreter = Interpreter::make(graph);
      ASSERT_TRUE(interpreter.ok());
      auto expected = interpreter->run(in, now);
      ASSERT_TRUE(expected.ok()) << expected.status().to_string();
      const HostTensor& want = (*expected)["y"];

      TileCompiled c =
          TileCompiled::make(graph, sizes(most, most),
                             {.exact_f32 = exact_f32, .multiprocessors = multiprocessors, .persistent = persistent});
      ASSERT_TRUE(c.status.ok()) << c.status.to_string();
      StepContext step;
      step.sizes = now;
      for (int again = 0; again < 2; ++again) {  // counters must serve a second step as well as the first
        for (const auto& [name, tensor] : in) put(*c.runner, graph, name, tensor);
        const Status status = c.runner->step(step);
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
      const std::vector<float> got = get(*c.runner, "y", static_cast<int64_t>(want.data.size()));
      double largest = 0, worst = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_FALSE(std::isnan(got[i])) << "rows " << rows << ", element " << i;
        largest = std::max(largest, std::abs(want.data[i]));
        worst = std::max(worst, std::abs(want.data[i] - static_cast<double>(got[i])));
      }
      EXPECT_LE(worst, tolerance * largest) << "rows " << rows;
      if (first.empty()) first = got;
      EXPECT_TRUE(got.empty() || std::memcmp(first.data(), got.data(), got.size() * sizeof(float)) == 0)
          << "rows " << rows << ": " << multiprocessors << " multiprocessors give other bits";
    }
  }
}

}  // namespace redline::test
