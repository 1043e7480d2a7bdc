// redline bench device: the peaks of a GPU, the time of each kernel of a model relative to them, and the number of rows
// from which the GPU's library multiplies faster.
#pragma once

#include <string>
#include <vector>

#include "lab/bench/network_bench.h"
#include "runtime/device_speeds.h"

namespace redline::lab {

struct DeviceBenchRequest {
  std::string device = "auto";
  std::string random;         ///< "llama-1b:q4_0", "flux-block:bf16"; "": the device alone
  std::vector<int64_t> rows;  ///< numbers of rows of a language model's steps
  int64_t side = 0;           ///< image side of a network in pixels; 0: its default
  int threads = 0;
  bool record = false;  ///< records the number of rows from which the library is used
  BenchProgress on_progress;
};

struct DeviceBenchReport {
  std::string device;  ///< "cuda:0"
  bool is_i8 = false;  ///< products of the steps are int8 products
  DeviceSpeeds speeds;
  struct Step {
    int64_t rows = 0;
    std::vector<StageTime> stages;
  };
  std::vector<Step> steps;
  std::string record_file;  ///< "": none was written

  /// Returns the lower bound of a stage's time on the device; 0: unknown.
  double bound_seconds(const StageTime& stage) const;
};

/// Runs the bench. unsupported: the device is the CPU, which `redline devices` measures, or the requested stages cannot
/// be recorded.
Result<DeviceBenchReport> run_device_bench(const DeviceBenchRequest& request);
Json device_bench_json(const DeviceBenchReport& report);

}  // namespace redline::lab
