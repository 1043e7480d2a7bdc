// redline bench device: what a GPU does at most, the time of each kernel of a model beside that, and from how many rows
// the GPU's library multiplies faster.
#pragma once

#include <string>
#include <vector>

#include "lab/bench/network_bench.h"
#include "runtime/device_speeds.h"

namespace redline::lab {

struct DeviceBenchRequest {
  std::string device = "auto";
  std::string random;         ///< "llama-1b:q4_0", "flux-block:bf16"; "": the device alone
  std::vector<int64_t> rows;  ///< of steps of a language model
  int64_t side = 0;           ///< of a network, in pixels; 0: its own
  int threads = 0;
  bool record = false;  ///< keeps the number of rows for the library
  BenchProgress on_progress;
};

struct DeviceBenchReport {
  std::string device;  ///< "cuda:0"
  bool is_i8 = false;  ///< products of the steps are of int8
  DeviceSpeeds speeds;
  struct Step {
    int64_t rows = 0;
    std::vector<StageTime> stages;
  };
  std::vector<Step> steps;
  std::string record_file;  ///< "": none was written

  /// The shortest time that the device needs for a stage; 0: not known.
  double bound_seconds(const StageTime& stage) const;
};

/// unsupported: the device is the CPU, which `redline devices` measures, or what is asked for cannot be recorded.
Result<DeviceBenchReport> run_device_bench(const DeviceBenchRequest& request);
Json device_bench_json(const DeviceBenchReport& report);

}  // namespace redline::lab
