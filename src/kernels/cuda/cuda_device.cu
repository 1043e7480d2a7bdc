// The module redline_cuda: the kernels of kernels/tiles for NVIDIA GPUs behind the table of device functions
// (kernels/tiles/tile_device.h). It is loaded at run time (runtime/device.cc) and needs no CUDA library: the runtime is
// linked into it, and without a driver redline does not load it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matrix_library.cuh"
#include "kernels/tiles/tile_device.h"

namespace redline::tiles {

const CudaKernel& stage_kernel(KernelId kernel) {
  const CudaKernel* product = product_kernel(kernel);
  return product ? *product : *other_kernel(kernel);
}

namespace {

/// Two buffers of pinned host memory: while the engine copies from one, the other is filled.
class PinnedBuffers {
 public:
  ~PinnedBuffers() { close(); }
  /// Returns the size of each buffer; 0: not open.
  size_t bytes() const { return bytes_; }
  uint8_t* memory() const { return static_cast<uint8_t*>(halves_[now_].memory); }
  /// Allocates the buffers. Any result other than cudaSuccess: there is no memory. `may_be_pageable`: uses pageable
  /// memory, with slower copies, where a machine limits pinned memory.
  cudaError_t open(size_t bytes, bool may_be_pageable) {
    cudaError_t error = cudaSuccess;
    for (Half& half : halves_) {
      if (error == cudaSuccess) error = cudaEventCreateWithFlags(&half.copied, cudaEventDisableTiming);
      if (error != cudaSuccess) break;
      error = cudaMallocHost(&half.memory, bytes);
      half.is_pinned = error == cudaSuccess;
      if (half.is_pinned || !may_be_pageable) continue;
      cudaGetLastError();  // no later call shall report it
      half.memory = std::malloc(bytes);
      error = half.memory ? cudaSuccess : cudaErrorMemoryAllocation;
    }
    bytes_ = bytes;
    if (error != cudaSuccess) close();
    return error;
  }
  /// Frees the buffers. All copies from them must have ended.
  void close() {
    for (Half& half : halves_) {
      if (half.is_pinned) cudaFreeHost(half.memory);
      else std::free(half.memory);
      if (half.copied) cudaEventDestroy(half.copied);
    }
    abandon();
  }
  /// Forgets the buffers without freeing them, because the GPU may still read them.
  void abandon() {
    for (Half& half : halves_) half = {};
    bytes_ = 0;
  }
  /// Switches to the other buffer after waiting until the copies from it that are in `stream` have ended.
  cudaError_t take_next(cudaStream_t stream) {
    if (const cudaError_t error = cudaEventRecord(halves_[now_].copied, stream); error != cudaSuccess) return error;
    now_ ^= 1;
    return cudaEventSynchronize(halves_[now_].copied);  // at once, before the first record
  }

 private:
  struct Half {
    void* memory = nullptr;
    cudaEvent_t copied = nullptr;
    bool is_pinned = false;
  };
  Half halves_[2];
  size_t bytes_ = 0;
  int now_ = 0;
};

/// Uploads data from any host memory through pinned buffers.
class PinnedUploads {
 public:
  /// Allocates the buffers. Any result other than cudaSuccess: there is no pinned memory.
  cudaError_t open() { return buffers_.open(kBytes, false); }
  bool is_open() const { return buffers_.bytes() > 0; }
  void abandon() { buffers_.abandon(); }
  /// Copies in the order of the stream. The caller may change `from` when this returns.
  cudaError_t upload(void* to, const void* from, size_t bytes, cudaStream_t stream) {
    for (size_t at = 0; at < bytes;) {
      if (used_ == buffers_.bytes()) {
        if (const cudaError_t error = buffers_.take_next(stream); error != cudaSuccess) return error;
        used_ = 0;
      }
      const size_t n = std::min(bytes - at, buffers_.bytes() - used_);
      uint8_t* const staged = buffers_.memory() + used_;
      std::memcpy(staged, static_cast<const uint8_t*>(from) + at, n);
      const cudaError_t error =
          cudaMemcpyAsync(static_cast<uint8_t*>(to) + at, staged, n, cudaMemcpyHostToDevice, stream);
      if (error != cudaSuccess) return error;
      used_ = std::min(buffers_.bytes(), (used_ + n + kAlignment - 1) / kAlignment * kAlignment);
      at += n;
    }
    return cudaSuccess;
  }

 private:
  // Size and alignment of the buffer for inputs and tables of steps.
  static constexpr size_t kBytes = size_t{4} << 20, kAlignment = 256;
  PinnedBuffers buffers_;
  size_t used_ = 0;
};

class CudaDevice {
 public:
  ~CudaDevice() {
    if (!stream_) return;
    if (is_lost_) {  // whatever frees its memory would wait for it
      (void)library_.release();
      uploads_.abandon();
      staging_.abandon();
      return;
    }
    cudaStreamSynchronize(copies_);
    cudaStreamSynchronize(stream_);
    library_.reset();
    cudaEventDestroy(order_);
    cudaStreamDestroy(copies_);
    cudaStreamDestroy(stream_);
  }
  /// Opens GPU `index`. `libraries`: folders of cuBLASLt, see MatrixLibrary::open().
  cudaError_t open(int32_t index, const char* libraries);
  TileDevice* table() { return &table_; }

  /// Converts `self` and makes the GPU current for the calling thread: CUDA keeps the current GPU per thread, and calls
  /// may come from any thread.
  static CudaDevice& of(void* self) {
    auto& device = *static_cast<CudaDevice*>(self);
    cudaSetDevice(device.index_);
    return device;
  }

  // The functions of the table.
  int32_t allocate(int64_t bytes, int32_t, void** memory) {
    if (is_lost_) return refuse();
    const size_t size = bytes > 0 ? static_cast<size_t>(bytes) : 1;
    if (const int32_t failed = check(cudaMalloc(memory, size), "cudaMalloc")) {
      cudaGetLastError();  // no later call shall report it
      return failed;
    }
    return check(cudaMemsetAsync(*memory, 0, size, stream_), "cudaMemset");
  }
  void release(void* memory) {
    if (is_lost_) return;
    cudaStreamSynchronize(stream_);
    cudaFree(memory);
  }
  int32_t memory(int64_t* free, int64_t* total) {
    if (is_lost_) return refuse();
    size_t left = 0, all = 0;
    const int32_t failed = check(cudaMemGetInfo(&left, &all), "cudaMemGetInfo");
    *free = static_cast<int64_t>(left);
    *total = static_cast<int64_t>(all);
    return failed;
  }
  int32_t upload(void* to, const void* from, int64_t bytes) {
    if (is_lost_) return refuse();
    if (!uploads_.is_open()) return copy_bytes(to, from, bytes, cudaMemcpyHostToDevice);
    return bytes <= 0 ? 0 : check(uploads_.upload(to, from, static_cast<size_t>(bytes), stream_), "cudaMemcpy");
  }
  int32_t download(void* to, const void* from, int64_t bytes) {
    return copy_bytes(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  int32_t stage(int64_t total, void** memory, int64_t* bytes) {
    if (is_lost_) return refuse();
    if (staging_.bytes() == 0) {
      const size_t size = std::clamp(static_cast<size_t>(std::max<int64_t>(0, total)), size_t{1} << 16, kStagingBytes);
      if (const int32_t failed = check(staging_.open(size, true), "cudaMallocHost")) {
        cudaGetLastError();  // no later call shall report it
        return failed;
      }
    }
    // Memory that has just been allocated is zeroed first.
    cudaError_t error = wait_for(copies_, stream_);
    if (error == cudaSuccess) error = staging_.take_next(copies_);
    *memory = staging_.memory();
    *bytes = static_cast<int64_t>(staging_.bytes());
    return check(error, "cudaMemcpy");
  }
  int32_t upload_staged(void* to, const void* from, int64_t bytes) {
    if (is_lost_) return refuse();
    if (bytes <= 0) return 0;
    return check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, copies_), "cudaMemcpy");
  }
  int32_t end_staging() {
    if (is_lost_) return refuse();
    cudaError_t error = wait_for(stream_, copies_);
    if (error == cudaSuccess) error = cudaStreamSynchronize(copies_);
    staging_.close();
    return check(error, "cudaMemcpy");
  }
  int32_t copy(void* to, const void* from, int64_t bytes) {
    return copy_bytes(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  int32_t clear(void* to, int64_t bytes) {
    if (is_lost_) return refuse();
    if (bytes <= 0) return 0;
    return check(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), stream_), "cudaMemset");
  }
  int32_t launch(const ProgramTables* program, int32_t stage, KernelId kernel, int32_t blocks) {
    if (is_lost_) return refuse();
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
    config.dynamicSmemBytes = k.needs_shared ? static_cast<size_t>(shared_bytes_) : 0;
    config.stream = stream_;
    config.attrs = &overlap;
    config.numAttrs = has_overlap_ ? 1 : 0;
    return check(cudaLaunchKernelExC(&config, k.function, args), "launch");
  }
  int32_t can_multiply(int32_t rows, int32_t cols, int32_t k, ProductType type) {
    return library_->can_multiply(rows, cols, k, type) ? 1 : 0;
  }
  int32_t multiply(const MatrixProduct* product) {
    const int status = library_->multiply(*product);
    if (status == 0) return 0;
    std::snprintf(error_, sizeof(error_), "%s: %s: a product of %d x %d x %d: status %d", table_.name, library_->name(),
                  product->rows, product->cols, product->k, status);
    return 1;
  }
  int32_t begin_capture() {
    return check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
  }
  int32_t end_capture(void** graph) {
    cudaGraph_t captured = nullptr;
    if (const int32_t failed = check(cudaStreamEndCapture(stream_, &captured), "capture")) return failed;
    cudaGraphExec_t ready = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&ready, captured, 0);
    cudaGraphDestroy(captured);
    *graph = ready;
    return check(error, "graph");
  }
  int32_t launch_graph(void* graph) {
    if (is_lost_) return refuse();
    return check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_), "graph");
  }
  void release_graph(void* graph) {
    if (is_lost_) return;
    cudaStreamSynchronize(stream_);
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
  }
  /// Launches a persistent step cooperatively, so that all blocks are resident: otherwise a block that waits for
  /// another one could deadlock.
  int32_t run_program(const ProgramTables* program, int32_t blocks) {
    ProgramTables tables = *program;
    void* args[] = {&tables};
    const cudaError_t error =
        cudaLaunchCooperativeKernel(persistent_step().function, dim3(static_cast<unsigned>(blocks)),
                                    dim3(persistent_step().threads), args, static_cast<size_t>(shared_bytes_), stream_);
    const int32_t failed = check(error, "launch of a persistent step");
    // Other programs on the GPU (MPS) may leave less than open() has found.
    if (error != cudaErrorCooperativeLaunchTooLarge && error != cudaErrorLaunchOutOfResources &&
        error != cudaErrorNotSupported)
      return failed;
    cudaGetLastError();  // no later call shall report it
    return kNotLaunched;
  }
  int32_t synchronize(uint64_t limit_ns) {
    if (is_lost_) return refuse();
    if (limit_ns == 0) return check(cudaStreamSynchronize(stream_), "step");
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      const cudaError_t error = cudaStreamQuery(stream_);
      if (error != cudaErrorNotReady) return check(error, "step");
      if (std::chrono::steady_clock::now() - begin < std::chrono::nanoseconds(limit_ns)) continue;
      is_lost_ = true;
      refuse();
      return kNotEnded;
    }
  }
  void close() { delete this; }
  const char* last_error() { return error_; }

 private:
  int32_t check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return 0;
    std::snprintf(error_, sizeof(error_), "%s: %s: %s", table_.name, what, cudaGetErrorString(error));
    return 1;
  }

  int32_t refuse() {
    std::snprintf(error_, sizeof(error_), "%s: the GPU does not answer: a step does not end, though its waits time out",
                  table_.name);
    return 1;
  }

  /// Orders all later work of stream `later` after the present work of `earlier`.
  cudaError_t wait_for(cudaStream_t later, cudaStream_t earlier) {
    const cudaError_t error = cudaEventRecord(order_, earlier);
    return error == cudaSuccess ? cudaStreamWaitEvent(later, order_, 0) : error;
  }

  int32_t copy_bytes(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    if (is_lost_) return refuse();
    if (bytes <= 0) return 0;
    if (const int32_t failed =
            check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_), "cudaMemcpy"))
      return failed;
    // Host memory may change when this returns.
    return kind == cudaMemcpyDeviceToDevice ? 0 : check(cudaStreamSynchronize(stream_), "cudaMemcpy");
  }

  TileDevice table_ = {};
  cudaStream_t stream_ = nullptr, copies_ = nullptr;
  cudaEvent_t order_ = nullptr;
  PinnedUploads uploads_;
  static constexpr size_t kStagingBytes = size_t{64} << 20;
  PinnedBuffers staging_;  ///< buffers for weights while a model is opened
  std::unique_ptr<MatrixLibrary> library_;
  int32_t index_ = 0;
  int shared_bytes_ = 0;  ///< shared memory of a block whose kernel uses shared memory
  bool has_overlap_ = false;
  bool is_lost_ = false;  ///< a step has not ended within its limit: no call may wait for the GPU from then on
  char name_[300] = "cuda", model_[300] = "";
  char error_[512] = "";
};

/// Returns the number of blocks of a persistent step that the GPU runs at the same time. 0: it cannot run persistent
/// steps; `why` is set to the reason.
int resident_blocks(const cudaDeviceProp& properties, int shared_bytes, const char*& why) {
  if (properties.cooperativeLaunch == 0) {
    why = "the GPU has no cooperative launches";
    return 0;
  }
  const CudaKernel& step = persistent_step();
  int each = 0;
  cudaError_t error = cudaFuncSetAttribute(step.function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error == cudaSuccess)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, step.function, static_cast<int>(step.threads),
                                                          static_cast<size_t>(shared_bytes));
  if (error != cudaSuccess) {
    cudaGetLastError();  // no later call shall report it
    why = "redline_cuda.so has no persistent step for the GPU";
    return 0;
  }
  if (each == 0) why = "a multiprocessor has too few registers or too little shared memory for a persistent step";
  return each * properties.multiProcessorCount;
}

cudaError_t allow_shared_memory(const CudaKernel& kernel, int bytes) {
  if (!kernel.needs_shared) return cudaSuccess;
  return cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

cudaError_t CudaDevice::open(int32_t index, const char* libraries) {
  table_ = table_of(this, name_);
  index_ = index;
  cudaDeviceProp properties;
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, index);
  if (error == cudaSuccess) {
    std::snprintf(name_, sizeof(name_), "cuda/sm%d%d", properties.major, properties.minor);
    std::snprintf(model_, sizeof(model_), "%s", properties.name);
    table_.model = model_;
    const int stages = ring_stages_of(static_cast<int>(properties.sharedMemPerBlockOptin));
    if (stages == 0) {
      std::snprintf(error_, sizeof(error_), "%s: a block has %zu bytes of shared memory; the kernels need %d", name_,
                    properties.sharedMemPerBlockOptin, shared_bytes_of(1));
      return cudaErrorNotSupported;
    }
    shared_bytes_ = shared_bytes_of(stages);
    error = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&order_, cudaEventDisableTiming);
  }
#define REDLINE_KERNEL(K) \
  if (error == cudaSuccess) error = allow_shared_memory(stage_kernel(KernelId::k##K), shared_bytes_);
  REDLINE_TILE_KERNELS(REDLINE_KERNEL)
#undef REDLINE_KERNEL
  // Without pinned memory, which a machine may limit, uploads are slower.
  if (error == cudaSuccess && uploads_.open() != cudaSuccess) cudaGetLastError();
  if (error == cudaErrorNoKernelImageForDevice) {
    std::snprintf(error_, sizeof(error_), "%s: compute capability %d.%d; this redline_cuda.so has code for %s", name_,
                  properties.major, properties.minor, REDLINE_CUDA_TARGETS);
    return error;
  }
  if (error != cudaSuccess) {
    check(error, "open");
    return error;
  }
  table_.multiprocessors = properties.multiProcessorCount;
  table_.persistent_blocks = resident_blocks(properties, shared_bytes_, table_.persistent_obstacle);
  cudaFuncAttributes wide;
  error = cudaFuncGetAttributes(&wide, stage_kernel(KernelId::kWideLinear).function);
  if (error != cudaSuccess) {
    check(error, "open");
    return error;
  }
  // Code of 8.0 does not wait for the kernel before it (block.cuh), even if a driver has compiled it for a newer GPU.
  has_overlap_ = wide.ptxVersion >= 90;
  // Only code for 9.0 itself has warp groups, and of that only 90a.
  const bool has_wide_code = wide.binaryVersion == 90 && wide.ptxVersion == 90;
  library_ = MatrixLibrary::open(libraries, stream_);
  if (library_) table_.library = library_->name();
  table_.has_warp_groups = has_wide_code && std::strstr(REDLINE_CUDA_TARGETS, "90a") != nullptr ? 1 : 0;
  return cudaSuccess;
}

}  // namespace
}  // namespace redline::tiles

/// Opens GPU `index`. `libraries`: folders of cuBLASLt, as MatrixLibrary::open(). Not 0: `error` says why.
extern "C" __attribute__((visibility("default"))) int32_t redline_open_cuda(int32_t abi, int32_t index,
                                                                            const char* libraries,
                                                                            redline::tiles::TileDevice** device,
                                                                            char* error, int32_t error_bytes) {
  using redline::tiles::CudaDevice;
  if (abi != redline::tiles::kTileDeviceAbi) {
    std::snprintf(error, static_cast<size_t>(error_bytes), "redline_cuda.so is of another build (interface %d, not %d)",
                  redline::tiles::kTileDeviceAbi, abi);
    return 1;
  }
  auto* opened = new CudaDevice();
  if (opened->open(index, libraries) != cudaSuccess) {
    std::snprintf(error, static_cast<size_t>(error_bytes), "%s", opened->last_error());
    delete opened;
    return 1;
  }
  *device = opened->table();
  return 0;
}
