#include "runtime/cuda_driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "backends/tiles/device_memory.h"

namespace redline {
namespace {

/// The few functions of the driver interface that are needed, with CUDA's names and numbers (cuda.h).
struct DriverFunctions {
  int (*init)(unsigned flags) = nullptr;
  int (*driver_version)(int* version) = nullptr;
  int (*device_count)(int* count) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*device_name)(char* name, int bytes, int device) = nullptr;
  int (*device_attribute)(int* value, int attribute, int device) = nullptr;
  int (*device_memory)(size_t* bytes, int device) = nullptr;
  int (*error_name)(int error, const char** name) = nullptr;
};
struct ContextFunctions {
  int (*retain)(void** context, int device) = nullptr;
  int (*release)(int device) = nullptr;
  int (*push)(void* context) = nullptr;
  int (*pop)(void** context) = nullptr;
  int (*memory)(size_t* free, size_t* total) = nullptr;
};
constexpr int kOutOfMemory = 2;
/// Minimum free memory of a GPU once a context exists: the reserve, and room for the module and the tables of a step.
constexpr int64_t kMinMemory = kDeviceReserve + (int64_t{256} << 20);
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;
constexpr int kNoDevice = 100;

template <class F>
bool find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(::dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, DriverFunctions& f) {
  return find(library, "cuInit", f.init) && find(library, "cuDriverGetVersion", f.driver_version) &&
         find(library, "cuDeviceGetCount", f.device_count) && find(library, "cuDeviceGet", f.device_get) &&
         find(library, "cuDeviceGetName", f.device_name) && find(library, "cuDeviceGetAttribute", f.device_attribute) &&
         find(library, "cuDeviceTotalMem_v2", f.device_memory) && find(library, "cuGetErrorName", f.error_name);
}

bool find_all(void* library, ContextFunctions& f) {
  return find(library, "cuDevicePrimaryCtxRetain", f.retain) &&
         find(library, "cuDevicePrimaryCtxRelease_v2", f.release) && find(library, "cuCtxPushCurrent_v2", f.push) &&
         find(library, "cuCtxPopCurrent_v2", f.pop) && find(library, "cuMemGetInfo_v2", f.memory);
}

constexpr const char* kKernelDriver = "/proc/driver/nvidia/version";

Status no_gpu() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return unsupported("cuda: the NVIDIA driver finds no GPU{}",
                     visible ? fmt::format("; CUDA_VISIBLE_DEVICES is \"{}\"", visible) : "");
}

std::string error_name(const DriverFunctions& f, int error) {
  const char* name = nullptr;
  return f.error_name(error, &name) == 0 && name ? name : fmt::format("error {}", error);
}

}  // namespace

// The library is never closed, because the driver starts threads.
bool has_cuda_driver() {
  std::error_code error;
  return ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr || std::filesystem::exists(kKernelDriver, error);
}

std::string missing_driver_text(const char* kernel_driver) {
  std::error_code error;
  if (!std::filesystem::exists(kernel_driver, error))
    return "there is no NVIDIA driver on this machine (libcuda.so.1 is not found)";
  return fmt::format(
      "the kernel has an NVIDIA driver ({}), but libcuda.so.1 is not found here; a container must be started with its "
      "GPUs (docker run --gpus all)",
      kernel_driver);
}

Result<CudaDriver> find_cuda_driver() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return unsupported("cuda: {}", missing_driver_text(kKernelDriver));
  DriverFunctions f;
  if (!find_all(library, f)) return unsupported("cuda: libcuda.so.1 is not an NVIDIA driver: functions are missing");
  CudaDriver driver;
  if (const int error = f.driver_version(&driver.version); error != 0)
    return unsupported("cuda: the NVIDIA driver does not report its version: {}", error_name(f, error));
  if (driver.version < kMinCudaVersion)
    return unsupported("cuda: the NVIDIA driver supports CUDA {}.{}; Redline needs CUDA {}.{}, which driver 580 brings",
                       driver.version / 1000, driver.version % 1000 / 10, kMinCudaVersion / 1000,
                       kMinCudaVersion % 1000 / 10);
  if (const int error = f.init(0); error != 0) {
    if (error == kNoDevice) return no_gpu();
    return unsupported("cuda: the NVIDIA driver does not start: {}", error_name(f, error));
  }
  int count = 0;
  if (const int error = f.device_count(&count); error != 0)
    return unsupported("cuda: the NVIDIA driver does not list GPUs: {}", error_name(f, error));
  for (int i = 0; i < count; ++i) {
    int device = 0;
    char name[256] = {};
    size_t bytes = 0;
    CudaGpu gpu;
    if (f.device_get(&device, i) != 0 || f.device_name(name, sizeof(name) - 1, device) != 0 ||
        f.device_attribute(&gpu.major, kCapabilityMajor, device) != 0 ||
        f.device_attribute(&gpu.minor, kCapabilityMinor, device) != 0 || f.device_memory(&bytes, device) != 0)
      return unsupported("cuda: the NVIDIA driver does not describe GPU {}", i);
    gpu.name = name;
    gpu.memory_bytes = static_cast<int64_t>(bytes);
    driver.gpus.push_back(std::move(gpu));
  }
  if (driver.gpus.empty()) return no_gpu();
  return driver;
}

Result<CudaContext> CudaContext::open(int index, const CudaGpu& gpu) {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  DriverFunctions f;
  ContextFunctions c;
  if (!library || !find_all(library, f) || !find_all(library, c))
    return unsupported("cuda:{}: libcuda.so.1 is not an NVIDIA driver: functions are missing", index);
  constexpr std::string_view kWayOut =
      "end what uses it (nvidia-smi lists it), or choose another GPU (--device cuda:N)";
  int device = 0;
  void* context = nullptr;
  if (const int error = f.device_get(&device, index); error != 0)
    return unsupported("cuda:{}: {}", index, error_name(f, error));
  const int retained = c.retain(&context, device);
  if (retained == kOutOfMemory)
    return out_of_device_memory(
        "cuda:{}: {} is full: of its {:.2f} GiB less than {:.2f} are free, which a context needs; {}", index, gpu.name,
        gib(gpu.memory_bytes), gib(kMinMemory), kWayOut);
  if (retained != 0)
    return unsupported("cuda:{}: {}: the driver cannot create a context: {}", index, gpu.name, error_name(f, retained));
  CudaContext opened(device);
  size_t free = 0, total = 0;
  void* popped = nullptr;
  int error = c.push(context);
  if (error == 0) {
    error = c.memory(&free, &total);
    c.pop(&popped);
  }
  if (error != 0)
    return unsupported("cuda:{}: {}: the driver does not report the GPU's memory: {}", index, gpu.name,
                       error_name(f, error));
  if (static_cast<int64_t>(free) >= kMinMemory) return opened;
  return out_of_device_memory("cuda:{}: {} is full: of its {:.2f} GiB {:.2f} are free, at least {:.2f} are needed; {}",
                              index, gpu.name, gib(static_cast<int64_t>(total)), gib(static_cast<int64_t>(free)),
                              gib(kMinMemory), kWayOut);
}

CudaContext::~CudaContext() {
  if (device_ < 0) return;
  ContextFunctions c;
  if (void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); library && find_all(library, c))
    c.release(device_);
}

std::string find_cuda_module(const std::string& setting) {
  if (!setting.empty()) return setting;
  std::error_code error;
  std::vector<std::filesystem::path> files = {std::filesystem::read_symlink("/proc/self/exe", error)};
  // If another program has loaded this library, the module is in the folder of the library.
  Dl_info self = {};
  if (::dladdr(reinterpret_cast<const void*>(&find_cuda_module), &self) != 0 && self.dli_fname)
    files.emplace_back(self.dli_fname);
  for (const std::filesystem::path& file : files)
    for (const char* place : {"redline_cuda.so", "../lib/redline/redline_cuda.so", "redline/redline_cuda.so"}) {
      const std::filesystem::path path = file.parent_path() / place;
      if (std::filesystem::exists(path, error)) return path.lexically_normal().string();
    }
  return "";
}

}  // namespace redline
