// The module redline_cuda: the kernels of kernels/tiles for NVIDIA GPUs behind the table of device functions
// (kernels/tiles/tile_device.h). It is loaded at run time (runtime/device.cc) and needs no CUDA library: the runtime is
// linked into it, and without a driver redline does not load it.
#include <cstdio>
#include <cstring>

#include "kernels/cuda/launch.cuh"
#include "kernels/tiles/tile_device.h"

namespace redline::tiles {

const CudaKernel& stage_kernel(KernelId kernel) {
  const CudaKernel* product = product_kernel(kernel);
  return product ? *product : *other_kernel(kernel);
}

namespace {

class CudaDevice {
 public:
  cudaError_t open(int32_t index);
  TileDevice* table() { return &table_; }
  const char* error() const { return error_; }

 private:
  /// Calls may come from any thread, and each thread has a GPU of its own that its calls mean.
  static CudaDevice& of(void* self) {
    auto& device = *static_cast<CudaDevice*>(self);
    cudaSetDevice(device.index_);
    return device;
  }
  int32_t check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return 0;
    std::snprintf(error_, sizeof(error_), "%s: %s: %s", table_.name, what, cudaGetErrorString(error));
    return 1;
  }

  static int32_t allocate(void* self, int64_t bytes, int32_t, void** memory) {
    CudaDevice& d = of(self);
    const size_t size = bytes > 0 ? static_cast<size_t>(bytes) : 1;
    if (const int32_t failed = d.check(cudaMalloc(memory, size), "cudaMalloc")) return failed;
    return d.check(cudaMemsetAsync(*memory, 0, size, d.stream_), "cudaMemset");
  }
  static void release(void* self, void* memory) {
    cudaStreamSynchronize(of(self).stream_);
    cudaFree(memory);
  }
  static int32_t copy_bytes(void* self, void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    if (bytes <= 0) return 0;
    CudaDevice& d = of(self);
    if (const int32_t failed =
            d.check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, d.stream_), "cudaMemcpy"))
      return failed;
    // Host memory may change when this returns.
    return kind == cudaMemcpyDeviceToDevice ? 0 : d.check(cudaStreamSynchronize(d.stream_), "cudaMemcpy");
  }
  static int32_t upload(void* self, void* to, const void* from, int64_t bytes) {
    return copy_bytes(self, to, from, bytes, cudaMemcpyHostToDevice);
  }
  static int32_t download(void* self, void* to, const void* from, int64_t bytes) {
    return copy_bytes(self, to, from, bytes, cudaMemcpyDeviceToHost);
  }
  static int32_t copy(void* self, void* to, const void* from, int64_t bytes) {
    return copy_bytes(self, to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  static int32_t clear(void* self, void* to, int64_t bytes) {
    if (bytes <= 0) return 0;
    return of(self).check(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), of(self).stream_), "cudaMemset");
  }
  static int32_t launch(void* self, const ProgramTables* program, int32_t stage, KernelId kernel, int32_t blocks) {
    CudaDevice& d = of(self);
    const CudaKernel& k = stage_kernel(kernel);
    ProgramTables tables = *program;
    void* args[] = {&tables, &stage};
    // The kernel begins while the one before it ends: it loads weights before it waits for that one's results
    // (block.cuh).
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(k.threads);
    config.dynamicSmemBytes = static_cast<size_t>(k.shared_bytes);
    config.stream = d.stream_;
    config.attrs = &overlap;
    config.numAttrs = 1;
    return d.check(cudaLaunchKernelExC(&config, k.function, args), "launch");
  }
  static int32_t begin_capture(void* self) {
    return of(self).check(cudaStreamBeginCapture(of(self).stream_, cudaStreamCaptureModeThreadLocal), "capture");
  }
  static int32_t end_capture(void* self, void** graph) {
    CudaDevice& d = of(self);
    cudaGraph_t captured = nullptr;
    if (const int32_t failed = d.check(cudaStreamEndCapture(d.stream_, &captured), "capture")) return failed;
    cudaGraphExec_t ready = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&ready, captured, 0);
    cudaGraphDestroy(captured);
    *graph = ready;
    return d.check(error, "graph");
  }
  static int32_t launch_graph(void* self, void* graph) {
    return of(self).check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), of(self).stream_), "graph");
  }
  static void release_graph(void* self, void* graph) {
    cudaStreamSynchronize(of(self).stream_);
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
  }
  /// Cooperative, so that all blocks are resident: a block that waits for another one could deadlock otherwise.
  static int32_t run_program(void* self, const ProgramTables* program, int32_t blocks) {
    CudaDevice& d = of(self);
    ProgramTables tables = *program;
    void* args[] = {&tables};
    return d.check(
        cudaLaunchCooperativeKernel(persistent_step().function, dim3(static_cast<unsigned>(blocks)),
                                    dim3(persistent_step().threads), args,
                                    static_cast<size_t>(persistent_step().shared_bytes), d.stream_),
        "launch of a persistent step");
  }
  static int32_t synchronize(void* self) { return of(self).check(cudaStreamSynchronize(of(self).stream_), "step"); }
  static void close(void* self) {
    cudaStreamDestroy(of(self).stream_);
    delete &of(self);
  }

  TileDevice table_ = {};
  cudaStream_t stream_ = nullptr;
  int32_t index_ = 0;
  char name_[300] = "cuda";
  char error_[512] = "";
};

cudaError_t allow_shared_memory(const CudaKernel& kernel) {
  if (kernel.shared_bytes == 0) return cudaSuccess;
  return cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes);
}

cudaError_t CudaDevice::open(int32_t index) {
  table_ = {.abi = kTileDeviceAbi,
            .multiprocessors = 0,
            .name = name_,
            .self = this,
            .allocate = allocate,
            .release = release,
            .upload = upload,
            .download = download,
            .copy = copy,
            .clear = clear,
            .launch = launch,
            .begin_capture = begin_capture,
            .end_capture = end_capture,
            .launch_graph = launch_graph,
            .release_graph = release_graph,
            .run_program = run_program,
            .synchronize = synchronize,
            .last_error = [](void* self) { return of(self).error(); },
            .close = close};
  index_ = index;
  cudaDeviceProp properties;
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, index);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
#define REDLINE_KERNEL(K) \
  if (error == cudaSuccess) error = allow_shared_memory(stage_kernel(KernelId::k##K));
  REDLINE_TILE_KERNELS(REDLINE_KERNEL)
#undef REDLINE_KERNEL
  if (error == cudaSuccess) error = allow_shared_memory(persistent_step());
  if (error != cudaSuccess) {
    check(error, "open");
    return error;
  }
  table_.multiprocessors = properties.multiProcessorCount;
  std::snprintf(name_, sizeof(name_), "cuda/sm%d%d", properties.major, properties.minor);
  return cudaSuccess;
}

}  // namespace
}  // namespace redline::tiles

/// Opens GPU `index`. Not 0: `error` says why.
extern "C" __attribute__((visibility("default"))) int32_t redline_open_cuda(int32_t abi, int32_t index,
                                                                            redline::tiles::TileDevice** device,
                                                                            char* error, int32_t error_bytes) {
  using redline::tiles::CudaDevice;
  if (abi != redline::tiles::kTileDeviceAbi) {
    std::snprintf(error, static_cast<size_t>(error_bytes), "redline_cuda.so is of another build (interface %d, not %d)",
                  redline::tiles::kTileDeviceAbi, abi);
    return 1;
  }
  auto* opened = new CudaDevice();
  if (opened->open(index) != cudaSuccess) {
    std::snprintf(error, static_cast<size_t>(error_bytes), "%s", opened->error());
    delete opened;
    return 1;
  }
  *device = opened->table();
  return 0;
}
