// The golden networks of tests/golden/image: tiny random checkpoints and PyTorch's outputs. golden_case.py there
// describes how a case is written.
#pragma once

#include <cstdlib>

#include "backends/tiles/tile_lowering.h"
#include "graph/check_program.h"
#include "graph/pass.h"
#include "models/checkpoint/checkpoint.h"
#include "runtime/executable.h"
#include "support/golden.h"
#include "support/npz.h"
#include "support/test_device.h"

namespace redline::testing {

struct ImageGolden {
  Checkpoint checkpoint;
  std::map<std::string, NpyArray> arrays;  ///< "RUN.NAME"

  std::vector<std::string> runs() const {
    std::vector<std::string> names;
    for (const auto& [name, array] : arrays)
      if (const std::string run = name.substr(0, name.find('.')); names.empty() || names.back() != run)
        names.push_back(run);
    return names;
  }
  const NpyArray* find(const std::string& run, const std::string& name) const {
    const auto at = arrays.find(run + "." + name);
    return at == arrays.end() ? nullptr : &at->second;
  }
};

/// A failed test when a file is missing.
inline ImageGolden load_image_golden(const std::string& name) {
  ImageGolden golden;
  const std::string folder = golden_root() + "/image/" + name;
  auto checkpoint = Checkpoint::open(folder);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  if (checkpoint.ok()) golden.checkpoint = std::move(checkpoint).value();
  auto arrays = read_npz(folder + "/io.npz");
  EXPECT_TRUE(arrays.ok()) << arrays.status().message();
  if (arrays.ok()) golden.arrays = std::move(arrays).value();
  return golden;
}

/// How a network is run in a test.
enum class NetworkMode { kInterpreter, kF32, kAuto, kEmulatedF32, kEmulated };
inline const char* network_mode_name(NetworkMode mode) {
  constexpr const char* kNames[] = {"interpreter", "f32", "auto", "emu_f32", "emu"};
  return kNames[static_cast<int>(mode)];
}
inline bool is_emulated(NetworkMode mode) {
  return mode == NetworkMode::kEmulatedF32 || mode == NetworkMode::kEmulated;
}
/// Returns true if activations are rounded to 16 bits.
inline bool rounds(NetworkMode mode) { return mode == NetworkMode::kAuto || mode == NetworkMode::kEmulated; }
/// All modes; under a forced instruction set of the CPU those that depend on it.
inline std::vector<NetworkMode> network_modes() {
  std::vector<NetworkMode> modes = {NetworkMode::kInterpreter, NetworkMode::kF32, NetworkMode::kAuto};
  if (!std::getenv("REDLINE_CPU_ISA")) modes.insert(modes.end(), {NetworkMode::kEmulatedF32, NetworkMode::kEmulated});
  return modes;
}

inline std::unique_ptr<RuntimeResources> make_runtime(int threads) {
  auto kernels = cpu_kernels();
  EXPECT_TRUE(kernels.ok());
  return std::make_unique<RuntimeResources>(threads, *kernels.value());
}

/// All but the bounds.
inline ExecutableOptions network_options(NetworkMode mode) {
  ExecutableOptions options;
  options.exact_f32 = !rounds(mode);
  if (is_emulated(mode)) options.device = choose_device(test::test_device()).value();
  options.pack_kv_format = mode == NetworkMode::kAuto ? KvFormat::kF16 : KvFormat::kF32;
  options.interpret = mode == NetworkMode::kInterpreter;
  return options;
}

/// Compiles the graph for a GPU of 132 multiprocessors and checks its schedule.
inline void expect_ordered(Graph graph, const SymbolValues& sizes) {
  ASSERT_TRUE(run_passes(graph).ok());
  WorkerTeam team(1);
  const auto device = std::make_shared<OpenDevice>(emu::open_emulated_device({.multiprocessors = 132, .team = &team}));
  const auto program = compile_tiles(std::move(graph), {.bounds = sizes}, device, team);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const Status status = check_program(*program, sizes);
  EXPECT_TRUE(status.ok()) << status.message();
}

inline Executable make_network(Graph graph, const SymbolValues& bounds, NetworkMode mode, RuntimeResources& runtime) {
  ExecutableOptions options = network_options(mode);
  options.bounds = bounds;
  if (mode == NetworkMode::kEmulated) expect_ordered(graph, bounds);
  auto network = Executable::make(std::move(graph), options, runtime);
  EXPECT_TRUE(network.ok()) << network.status().message();
  return network.ok() ? std::move(network).value() : Executable();
}

/// Copies what the network takes of a run's arrays.
inline void fill_inputs(Executable& network, const ImageGolden& golden, const std::string& run,
                        const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const NpyArray* array = golden.find(run, name);
    if (!network.has_input(name)) continue;
    ASSERT_TRUE(array) << run << "." << name << " is not in the case";
    std::copy(array->values.begin(), array->values.end(), network.input(name));
  }
}

/// Largest difference over the largest value expected.
inline double relative_error(std::span<const float> got, const NpyArray& expected) {
  EXPECT_GE(got.size(), expected.values.size());
  double most = 0, error = 0;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const auto want = expected.values[i];
    if (!(std::abs(static_cast<double>(got[i]) - want) < INFINITY)) return INFINITY;
    most = std::max(most, std::abs(want));
    error = std::max(error, std::abs(static_cast<double>(got[i]) - want));
  }
  return most > 0 ? error / most : error;
}

}  // namespace redline::testing
