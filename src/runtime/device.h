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
  kEmulated,  ///< emulates the GPU kernels on the CPU, slowly; for tests and for inspecting programs
  kCuda,
};

struct DeviceChoice {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;  ///< GPU number; read for kCuda only
};

/// Parses a device name: "auto" (or ""), "cpu", "emu", "cuda" or "cuda:N". `auto` is the device that REDLINE_DEVICE
/// names, else the first GPU that opens and passes check_device(), else the CPU. The reason for falling back to the CPU
/// is a notice (redline/device_notice.h) unless there is no NVIDIA driver at all. invalid_argument: another name.
Result<DeviceChoice> choose_device(std::string_view name);

/// Returns true if choose_device(name) is a GPU that the user has not named.
bool is_automatic_gpu(std::string_view name);

/// Calls the function of on_device_notice() with this sentence, once per sentence.
void note_device(const std::string& sentence);

/// Returns open(device). If `auto` has chosen a GPU that cannot run the model (unsupported, out_of_memory), returns
/// open("cpu").
template <class Open>
auto open_on_device(const std::string& device, const Open& open) {
  auto opened = open(device);
  const Code code = opened.status().code();
  if ((code != Code::unsupported && !is_out_of_memory(code)) || !is_automatic_gpu(device)) return opened;
  auto on_cpu = open(std::string("cpu"));
  if (on_cpu.ok()) note_device("the model runs on the CPU: " + opened.status().message());
  return on_cpu;
}

/// Returns the device of an engine, as choose_device(); the CPU for an interpreted engine.
Result<DeviceChoice> choose_engine_device(std::string_view name, bool use_interpreter);

/// Returns "cpu", "emu" or "cuda:0".
std::string device_name(const DeviceChoice& choice);

/// Opens a tile device (not kCpu). `team` runs the blocks of the emulated device and must outlive it. unsupported: the
/// message says whether driver, GPU, or the module of this build is missing, or that the GPU computes wrong numbers.
Result<std::shared_ptr<OpenDevice>> open_device(const DeviceChoice& choice, WorkerTeam& team);

}  // namespace redline
