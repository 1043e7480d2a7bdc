// Resources that the models of a process share: worker threads with their scratch memory, kernels, and the timeline.
//
//   auto runtime = redline::Runtime::open({.threads = 8});
//   if (!runtime.ok()) return fail(runtime.status());
//   auto target = redline::TextEngine::open("target.gguf", {.runtime = *runtime});
//   auto draft = redline::TextEngine::open("draft.gguf", {.runtime = *runtime});
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "redline/status.h"

namespace redline {

struct RuntimeOptions {
  int threads = 0;         ///< worker threads; 0: REDLINE_THREADS, else all cores available to the process
  std::string trace_file;  ///< write a timeline (Perfetto JSON) when the runtime closes; "": none
};

/// Worker threads and their memory. Thread-safe. Steps of the models that share a runtime take turns on its workers. An
/// engine that is opened without a runtime makes its own.
class Runtime {
 public:
  /// Starts the workers. invalid_argument: an impossible number of threads. io: the timeline cannot be written.
  static Result<std::shared_ptr<Runtime>> open(const RuntimeOptions& options = {});
  virtual ~Runtime() = default;

  virtual int threads() const = 0;
  virtual const std::string& isa() const = 0;  ///< instruction set of the kernels in use
};

/// A device that TextEngineOptions::device can name.
struct DeviceInfo {
  std::string name;         ///< "cpu", "emu", "cuda:0"; "cuda" stands for a missing GPU
  std::string description;  ///< "NVIDIA H200, compute capability 9.0, 139.8 GiB"
  bool is_available = true;
  std::string reason;      ///< why it is not available
  std::string steps;       ///< how the device runs the steps of a language model; "" for the CPU
  int64_t free_bytes = 0;  ///< bytes of GPU memory that can still be allocated
  std::string library;     ///< library that a GPU uses for products of large matrices; "": Redline's own kernels
};
/// Lists the CPU, the emulated device, and every GPU, or the reason why there is no GPU. Each GPU is opened and runs a
/// test computation.
std::vector<DeviceInfo> list_devices();

}  // namespace redline
