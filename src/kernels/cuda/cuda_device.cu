// The module redline_cuda: the kernels of kernels/tiles for NVIDIA GPUs behind the table of device functions
// (kernels/tiles/tile_device.h). It is loaded at run time (runtime/device.cc) and needs no CUDA library: the runtime is
// linked into it, and without a driver redline does not load it.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

#include "kernels/tiles/tile_device.h"

namespace redline::tiles {
namespace {

constexpr int kBlockSharedBytes = kSharedBytes + 8 * kNumBarriers;

__device__ __forceinline__ Warp make_warp(uint8_t* shared) {
  return Warp(shared, static_cast<int>(threadIdx.x) / kWarpLanes);
}

/// The mbarriers are initialized by one warp and seen by all, the engine of bulk copies included.
__device__ __forceinline__ void init_ring(Warp& w) {
  if (w.index() == 0) Ring::init(w);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}

template <class Kernel>
__global__ void __launch_bounds__(kBlockWarps* kWarpLanes) run_stage(ProgramTables program, int32_t stage) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const StageTable& table = program.stages[stage];
  const auto& args = *reinterpret_cast<const typename Kernel::Args*>(program.constants + table.args);
  const TileRange tile = tile_of(table, static_cast<int32_t>(blockIdx.x), *program.step, true);
  Warp w = make_warp(shared);
  RingPosition ring;
  if constexpr (Kernel::kLoads) {
    init_ring(w);
    if (w.index() == kConsumerWarps) return Kernel::load(args, tile, w, ring);
  }
  Kernel::compute(args, tile, *program.step, w, ring);
}

__global__ void __launch_bounds__(kBlockWarps* kWarpLanes) run_whole_step(ProgramTables program) {
  extern __shared__ __align__(1024) uint8_t shared[];
  Warp w = make_warp(shared);
  init_ring(w);
  run_persistent(program, static_cast<int>(blockIdx.x), w);
}

class CudaDevice {
 public:
  cudaError_t open(int32_t index);
  TileDevice* table() { return &table_; }
  const char* error() const { return error_; }

 private:
  static CudaDevice& of(void* self) { return *static_cast<CudaDevice*>(self); }
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
  template <class Kernel>
  static void start(const ProgramTables& program, int32_t stage, int32_t blocks, cudaStream_t stream) {
    constexpr int kWarps = Kernel::kLoads ? kBlockWarps : kConsumerWarps;
    run_stage<Kernel><<<blocks, kWarps * kWarpLanes, Kernel::kLoads ? kBlockSharedBytes : 0, stream>>>(program, stage);
  }
  static int32_t launch(void* self, const ProgramTables* program, int32_t stage, KernelId kernel, int32_t blocks) {
    CudaDevice& d = of(self);
    switch (kernel) {
#define REDLINE_KERNEL(K) \
  case KernelId::k##K: start<K>(*program, stage, blocks, d.stream_); break;
      REDLINE_TILE_KERNELS(REDLINE_KERNEL)
#undef REDLINE_KERNEL
    }
    return d.check(cudaGetLastError(), "launch");
  }
  /// Cooperative, so that all blocks are resident: a block that waits for another one could deadlock otherwise.
  static int32_t run_program(void* self, const ProgramTables* program, int32_t blocks) {
    CudaDevice& d = of(self);
    ProgramTables tables = *program;
    void* args[] = {&tables};
    return d.check(
        cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(run_whole_step), dim3(static_cast<unsigned>(blocks)),
                                    dim3(kBlockWarps * kWarpLanes), args, kBlockSharedBytes, d.stream_),
        "launch of a persistent step");
  }
  static int32_t synchronize(void* self) { return of(self).check(cudaStreamSynchronize(of(self).stream_), "step"); }
  static void close(void* self) {
    cudaStreamDestroy(of(self).stream_);
    delete &of(self);
  }

  TileDevice table_ = {};
  cudaStream_t stream_ = nullptr;
  char name_[300] = "cuda";
  char error_[512] = "";
};

template <class Kernel>
cudaError_t allow_shared_memory() {
  if (!Kernel::kLoads) return cudaSuccess;
  return cudaFuncSetAttribute(run_stage<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBlockSharedBytes);
}

cudaError_t CudaDevice::open(int32_t index) {
  table_ = {kTileDeviceAbi, 0,    name_, this,   allocate,    release,     upload,
            download,       copy, clear, launch, run_program, synchronize, [](void* self) { return of(self).error(); },
            close};
  cudaDeviceProp properties;
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, index);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
#define REDLINE_KERNEL(K) \
  if (error == cudaSuccess) error = allow_shared_memory<K>();
  REDLINE_TILE_KERNELS(REDLINE_KERNEL)
#undef REDLINE_KERNEL
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(run_whole_step, cudaFuncAttributeMaxDynamicSharedMemorySize, kBlockSharedBytes);
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
