// redline bench --random flux-block: measures the time of one run of a network relative to its bound on this machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/runner.h"
#include "lab/bench/progress.h"
#include "lab/json.h"
#include "machine/peaks.h"
#include "tensor/dtype.h"

namespace redline::lab {

struct NetworkBenchRequest {
  std::string network;  ///< "flux-block:bf16"
  int64_t side = 0;     ///< image side in pixels, or columns; 0: the default
  std::string device = "auto";
  int threads = 0;
  std::optional<int64_t> repeat;  ///< number of runs; nullopt: up to 5, within `seconds`
  double seconds = 120;
  bool check = true;
  bool stages = false;  ///< also times the stages of a device
  std::string trace;
  BenchProgress on_progress;  ///< may be empty
};

struct NetworkBenchReport {
  std::string name, about;
  std::string device;  ///< "cpu", "cuda:0"
  DType weights = DType::kF32;
  int threads = 0;
  std::vector<double> seconds;  ///< times of the runs, sorted
  double operations = 0;        ///< operations of one run
  double once_operations = 0;   ///< operations of the step invariants, which `seconds` does not include
  std::optional<Peak> best;     ///< the fastest instruction for the matrix products
  std::optional<double> error;  ///< error relative to the float64 interpreter; nullopt: not checked
  std::string check_about;      ///< size of the checked run
  int64_t weight_bytes = 0, arena_bytes = 0, arena_bytes_without_reuse = 0, peak_bytes = 0;
  std::vector<StageTime> stages;  ///< times of a device's stages, if requested
  bool state_changed = false;     ///< the machine's speed changed during the runs

  double median() const { return seconds[seconds.size() / 2]; }
  double gop_per_s() const { return operations / median() / 1e9; }
  double share() const { return best && best->all > 0 ? gop_per_s() / best->all : 0; }
  /// Returns the peak memory divided by the bytes of weights and arena.
  double peak_ratio() const {
    return static_cast<double>(peak_bytes) / static_cast<double>(weight_bytes + arena_bytes);
  }
};

/// Times runs of a step, then compares the output of the same network and weights at a small size with the float64
/// interpreter. internal: they differ.
Result<NetworkBenchReport> run_network_bench(const NetworkBenchRequest& request);
Json network_bench_json(const NetworkBenchReport& report);
Json stages_json(const std::vector<StageTime>& stages);

}  // namespace redline::lab
