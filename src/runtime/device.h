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

/// "auto" ("" is the same), "cpu", "emu", "cuda" or "cuda:N". `auto` is what REDLINE_DEVICE names, else the first GPU
/// that opens and passes check_device(), else the CPU; the reason is a notice (redline/device_notice.h) unless there is
/// no NVIDIA driver at all. invalid_argument: another name.
Result<DeviceChoice> choose_device(std::string_view name);

/// Whether choose_device(name) is a GPU that the user has not asked for.
bool is_automatic_gpu(std::string_view name);

/// Calls the function of on_device_notice() with this sentence, unless it has had it before.
void note_device(const std::string& sentence);

/// open(device), and where `auto` has chosen a GPU that cannot run the model (unsupported, out_of_memory), open("cpu").
template <class Open>
auto open_on_device(const std::string& device, const Open& open) {
  auto opened = open(device);
  const Code code = opened.status().code();
  if ((code != Code::unsupported && !is_out_of_memory(code)) || !is_automatic_gpu(device)) return opened;
  auto on_cpu = open(std::string("cpu"));
  if (on_cpu.ok()) note_device("the model runs on the CPU: " + opened.status().message());
  return on_cpu;
}

/// The device of an engine, as choose_device(); of an interpreted one, the CPU.
Result<DeviceChoice> choose_engine_device(std::string_view name, bool use_interpreter);

/// "cpu", "emu" or "cuda:0".
std::string device_name(const DeviceChoice& choice);

/// Opens a tile device (not kCpu). `team` runs the blocks of the emulated one and must outlive it.
/// unsupported: says what is missing: driver, GPU, or the module of this build; or that the GPU computes wrong numbers.
Result<std::shared_ptr<OpenDevice>> open_device(const DeviceChoice& choice, WorkerTeam& team);

}  // namespace redline
