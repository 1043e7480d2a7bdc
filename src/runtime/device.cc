#include "runtime/device.h"

#include <dlfcn.h>

#include <charconv>
#include <mutex>
#include <set>

#include "backends/tiles/step_choice.h"
#include "base/cache_folder.h"
#include "base/settings.h"
#include "kernels/emu/emulated_device.h"
#include "redline/device_notice.h"
#include "redline/runtime.h"
#include "runtime/cuda_driver.h"
#include "runtime/cuda_libraries.h"
#include "runtime/device_check.h"
#include "runtime/device_record.h"

namespace redline {
namespace {

Result<DeviceChoice> parse_device(std::string_view name) {
  if (name == "cpu") return DeviceChoice{};
  if (name == "emu") return DeviceChoice{DeviceKind::kEmulated};
  if (name == "cuda") return DeviceChoice{DeviceKind::kCuda};
  if (name.starts_with("cuda:")) {
    DeviceChoice choice{DeviceKind::kCuda};
    const char* const end = name.data() + name.size();
    const auto [last, error] = std::from_chars(name.data() + 5, end, choice.index);
    if (error == std::errc() && last == end && choice.index >= 0) return choice;
  }
  return invalid_argument("unknown device \"{}\"; expected one of auto, cpu, emu, cuda, cuda:N", name);
}

/// Checks that the GPU can run the kernels, and that the build has a module with them.
Status check_gpu(const CudaGpu& gpu, int index, const std::string& module) {
  if (10 * gpu.major + gpu.minor < kMinCapability)
    return unsupported("cuda:{}: {} has compute capability {}.{}; the kernels need {}.{}", index, gpu.name, gpu.major,
                       gpu.minor, kMinCapability / 10, kMinCapability % 10);
  if (module.empty())
    return unsupported("cuda:{}: found {}, but this build has no CUDA kernels (no redline_cuda.so beside the program)",
                       index, gpu.name);
  return {};
}

/// Applies earlier measurements of this device, if there are any.
void use_record(OpenDevice& device) {
  const Result<CacheSettings> cache = read_cache_settings();
  if (!cache.ok() || device.table().library == nullptr) return;
  if (const auto record = read_device_record(cache->folder, device.table().model, device.table().library))
    device.set_own_rows(record->own_rows);
}

Result<std::shared_ptr<OpenDevice>> open_cuda(int index) {
  REDLINE_ASSIGN(const CudaDriver driver, find_cuda_driver());
  if (index >= static_cast<int>(driver.gpus.size()))
    return invalid_argument("cuda:{}: the NVIDIA driver lists {} GPU{}", index, driver.gpus.size(),
                            driver.gpus.size() == 1 ? "" : "s");
  REDLINE_ASSIGN(const Settings settings, read_settings());
  const std::string path = find_cuda_module(settings.cuda_module);
  const CudaGpu& gpu = driver.gpus[static_cast<size_t>(index)];
  REDLINE_TRY(check_gpu(gpu, index, path));
  // The module's context is this one; without memory for it, the module could not say what is missing.
  REDLINE_ASSIGN(const CudaContext context, CudaContext::open(index, gpu));
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return unsupported("cuda: {}", ::dlerror());
  using Open = int32_t (*)(int32_t abi, int32_t index, const char* libraries, tiles::TileDevice** device, char* error,
                           int32_t error_bytes);
  const auto open = reinterpret_cast<Open>(::dlsym(library, "redline_open_cuda"));
  if (!open) return unsupported("cuda: {} has no redline_open_cuda", path);
  char error[512] = {};
  tiles::TileDevice* device = nullptr;
  const std::string libraries = matrix_library_folders(settings.cuda_libs);
  if (open(tiles::kTileDeviceAbi, index, libraries.c_str(), &device, error, sizeof(error)) != 0)
    return unsupported("cuda:{}: {}", index, error);
  auto opened = std::make_shared<OpenDevice>(device);
  if (device->library == nullptr && settings.cuda_libs != "none")
    note_device(settings.cuda_libs.empty()
                    ? "no cuBLASLt 13 is found; kernels of Redline's own take its place (REDLINE_CUDA_LIBS names its "
                      "folder, or none)"
                    : fmt::format("REDLINE_CUDA_LIBS: no cuBLASLt 13 loads from {}; kernels of Redline's own take its "
                                  "place",
                                  settings.cuda_libs));
  if (settings.device_check != 0) {
    WorkerTeam team(1);
    REDLINE_TRY(check_device(opened, team).within(fmt::format("cuda:{}", index)));
  }
  use_record(*opened);
  return opened;
}

std::mutex g_notice_mutex;
std::function<void(const std::string&)> g_notice;
std::set<std::string> g_noted;

/// Chooses and opens the GPU that the device name `auto` stands for.
class AutomaticGpu {
 public:
  /// Returns the only instance. It is never destroyed, because the driver may have shut down before.
  static AutomaticGpu& instance() {
    static auto& gpu = *new AutomaticGpu;
    return gpu;
  }
  /// Returns the number of the first GPU that opens; -1 if none does.
  int index() {
    std::call_once(is_chosen_, [&] { choose(); });
    return index_;
  }
  /// Returns the open device to the first caller that asks for its number; nullptr otherwise.
  std::shared_ptr<OpenDevice> take(int index) {
    const std::lock_guard lock(mutex_);
    return opened_ && index_ == index ? std::exchange(opened_, nullptr) : nullptr;
  }

 private:
  void choose() {
    const Result<CudaDriver> driver = find_cuda_driver();
    if (!driver.ok()) {
      if (has_cuda_driver()) note_device("auto takes the CPU: " + driver.status().message());
      return;
    }
    std::string reasons;
    for (int i = 0; i < static_cast<int>(driver->gpus.size()); ++i) {
      Result<std::shared_ptr<OpenDevice>> opened = open_cuda(i);
      if (opened.ok()) {
        const std::lock_guard lock(mutex_);
        opened_ = std::move(opened).value();
        index_ = i;
        return;
      }
      reasons += (i > 0 ? "; " : "") + opened.status().message();
    }
    note_device("auto takes the CPU: " + reasons);
  }
  std::once_flag is_chosen_;
  std::mutex mutex_;
  int index_ = -1;
  std::shared_ptr<OpenDevice> opened_;
};

/// Returns the name itself, or for `auto` the value of REDLINE_DEVICE; "" if that is not set.
Result<std::string> automatic_name(std::string_view name) {
  if (!name.empty() && name != "auto") return std::string(name);
  REDLINE_ASSIGN(const Settings settings, read_settings());
  return settings.device == "auto" ? std::string() : settings.device;
}

}  // namespace

void on_device_notice(std::function<void(const std::string&)> notice) {
  const std::lock_guard lock(g_notice_mutex);
  g_notice = std::move(notice);
}

void note_device(const std::string& sentence) {
  const std::lock_guard lock(g_notice_mutex);
  if (g_notice && g_noted.insert(sentence).second) g_notice(sentence);
}

bool is_automatic_gpu(std::string_view name) {
  const Result<std::string> chosen = automatic_name(name);
  return chosen.ok() && chosen->empty() && AutomaticGpu::instance().index() >= 0;
}

Result<DeviceChoice> choose_device(std::string_view name) {
  if (!name.empty() && name != "auto") return parse_device(name);
  REDLINE_ASSIGN(const std::string chosen, automatic_name(name));
  if (!chosen.empty()) return parse_device(chosen).within("REDLINE_DEVICE");
  const int gpu = AutomaticGpu::instance().index();
  return gpu < 0 ? DeviceChoice{} : DeviceChoice{DeviceKind::kCuda, gpu};
}

Result<DeviceChoice> choose_engine_device(std::string_view name, bool use_interpreter) {
  return use_interpreter ? DeviceChoice{} : choose_device(name);
}

std::string device_name(const DeviceChoice& choice) {
  switch (choice.kind) {
    case DeviceKind::kCpu: return "cpu";
    case DeviceKind::kEmulated: return "emu";
    case DeviceKind::kCuda: return fmt::format("cuda:{}", choice.index);
  }
  return "";
}

Result<std::shared_ptr<OpenDevice>> open_device(const DeviceChoice& choice, WorkerTeam& team) {
  if (choice.kind == DeviceKind::kCuda) {
    if (auto opened = AutomaticGpu::instance().take(choice.index)) return opened;
    auto device = open_cuda(choice.index);
    if (device.ok()) return device;
    return Status(device.status().code(), device.status().message() + "; the device cpu needs no GPU (--device cpu)");
  }
  // No library, and so no record: an emulated one says nothing about GPUs.
  emu::EmulatedDeviceOptions options;
  options.team = &team;
  return std::make_shared<OpenDevice>(emu::open_emulated_device(options));
}

std::vector<DeviceInfo> list_devices() {
  const Result<Settings> settings = read_settings();
  const Result<StepMode> mode =
      settings.ok() ? parse_step_mode(settings->device_steps) : Result<StepMode>(settings.status());
  const auto steps = [&](std::string obstacle) {
    return choose_steps(mode.ok() ? *mode : StepMode::kAuto, std::move(obstacle)).text();
  };
  std::vector<DeviceInfo> devices = {
      {"cpu", "the kernels of this machine's instruction sets"},
      {"emu", "an emulated GPU: the kernels of GPUs on the CPU, slowly, for tests", true, "", steps("")},
  };
  const Result<CudaDriver> driver = find_cuda_driver();
  if (!driver.ok()) {
    devices.push_back({"cuda", "", false, driver.status().message()});
    return devices;
  }
  for (size_t i = 0; i < driver->gpus.size(); ++i) {
    const CudaGpu& gpu = driver->gpus[i];
    DeviceInfo info{fmt::format("cuda:{}", i), fmt::format("{}, compute capability {}.{}, {:.1f} GiB", gpu.name,
                                                           gpu.major, gpu.minor, gib(gpu.memory_bytes))};
    const Result<std::shared_ptr<OpenDevice>> opened = open_cuda(static_cast<int>(i));
    if (!opened.ok()) {
      info.is_available = false;
      info.reason = opened.status().message();
    } else {
      const Result<OpenDevice::Memory> memory = (*opened)->memory();
      info.free_bytes = memory.ok() ? memory->free : 0;
      const char* const library = (*opened)->table().library;
      info.library = library != nullptr ? library : "";
      info.steps = steps((*opened)->persistent_obstacle());
    }
    devices.push_back(std::move(info));
  }
  return devices;
}

}  // namespace redline
