// The devices that can run a graph, by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tiles/device_memory.h"
#include "base/worker_team.h"

namespace redline {

enum class DeviceKind : uint8_t {
  kCpu,
  kEmulated,  ///< the kernels of GPUs on the CPU, slowly: for tests and to look into programs
  kCuda,
};

struct DeviceChoice {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;  ///< of kCuda
};

/// "auto" ("" is the same), "cpu", "emu", "cuda" or "cuda:N". `auto` is what REDLINE_DEVICE names, else the CPU.
/// invalid_argument: another name.
Result<DeviceChoice> choose_device(std::string_view name);

/// The device of an engine, as choose_device(); of an interpreted one, the CPU. invalid_argument: a timeline in
/// `trace_file` too, which only the CPU draws yet.
Result<DeviceChoice> choose_engine_device(std::string_view name, bool use_interpreter, std::string_view trace_file);

/// "cpu", "emu" or "cuda:0".
std::string device_name(const DeviceChoice& choice);

/// Opens a tile device (not kCpu). `team` runs the blocks of the emulated one and must outlive it.
/// unsupported: says what is missing: driver, GPU, or the module of this build.
Result<std::shared_ptr<OpenDevice>> open_device(const DeviceChoice& choice, WorkerTeam& team);

}  // namespace redline
