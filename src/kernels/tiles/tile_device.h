// The functions of a device that runs tile programs, as one C table: the emulated device fills it, and a module of CUDA
// does. Nothing else crosses the border, so the runner (backends/tiles) exists once.
#pragma once

#include <cstdint>

#include "kernels/tiles/kernels.h"

namespace redline::tiles {

/// Incremented with every change of the table or of the structs its arguments point to.
inline constexpr int32_t kTileDeviceAbi = 8;

/// Of run_program: the device refuses the launch, and nothing of it has run.
inline constexpr int32_t kNotLaunched = 2;
/// Of synchronize: the limit has passed.
inline constexpr int32_t kNotEnded = 3;

/// Of the factors of a product.
enum class ProductType : int32_t { kBF16, kE4M3, kI8 };

/// y = x w^T by a library of the device: x [rows, k] and w [cols, k], y [rows, cols] is float32, as are its sums, or of
/// int8 both are int32; all are dense and aligned to 16 bytes, k is a multiple of 8 (of 16 for one byte) and cols of 4.
struct MatrixProduct {
  const void* x;
  const void* w;
  void* y;
  int32_t rows, cols, k;
  ProductType type;
};

/// Functions return 0, or another number and last_error() says why. Calls come from one thread at a time.
struct TileDevice {
  int32_t abi;
  int32_t multiprocessors;
  int32_t has_warp_groups;  ///< launches may be of wide_kernel()
  const char* name;         ///< "emu/sm90a"
  const char* model;        ///< "NVIDIA H200"
  const char* library;      ///< "cuBLASLt 13.0.2": there is multiply(); nullptr: none
  /// Blocks of a persistent step that run at the same time; 0: there is none, and `persistent_obstacle` says why.
  int32_t persistent_blocks;
  const char* persistent_obstacle;
  /// Waits of kernels time out when nothing else can run, not after ProgramTables::deadline_ns of time.
  int32_t gives_up_at_once;
  void* self;
  /// Zeroed. `is_constant`: kernels do not write it, so bulk copies may read it.
  int32_t (*allocate)(void* self, int64_t bytes, int32_t is_constant, void** memory);
  void (*release)(void* self, void* memory);
  /// Bytes that can still be allocated, and that the device has.
  int32_t (*memory)(void* self, int64_t* free, int64_t* total);
  int32_t (*upload)(void* self, void* to, const void* from, int64_t bytes);
  int32_t (*download)(void* self, void* to, const void* from, int64_t bytes);
  /// Weights are written where the device copies from: stage() gives one of two buffers of host memory, whose last
  /// copies have ended, and its size; upload_staged() copies a part of it while the host fills the other one. What is
  /// launched after end_staging() comes after all copies. `total`: bytes that will be staged, as far as is known.
  int32_t (*stage)(void* self, int64_t total, void** memory, int64_t* bytes);
  int32_t (*upload_staged)(void* self, void* to, const void* from, int64_t bytes);
  int32_t (*end_staging)(void* self);
  int32_t (*copy)(void* self, void* to, const void* from, int64_t bytes);
  int32_t (*clear)(void* self, void* to, int64_t bytes);
  /// Runs stage `stage` of a program with a block for each of its `blocks` tiles; `kernel` is the stage's, or its
  /// wide_kernel(). `program` is in host memory, what it points to in the device's. After everything that was launched
  /// before.
  int32_t (*launch)(void* self, const ProgramTables* program, int32_t stage, KernelId kernel, int32_t blocks);
  /// 0: the library has no kernel for the sizes and the type.
  int32_t (*can_multiply)(void* self, int32_t rows, int32_t cols, int32_t k, ProductType type);
  /// After everything that was launched before; a part of a graph, where one is captured.
  int32_t (*multiply)(void* self, const MatrixProduct* product);
  /// Launches from now on are recorded, not run, until end_capture(), which makes a graph of them. A graph is launched
  /// repeatedly, with the current contents of its arguments.
  int32_t (*begin_capture)(void* self);
  int32_t (*end_capture)(void* self, void** graph);
  int32_t (*launch_graph)(void* self, void* graph);
  void (*release_graph)(void* self, void* graph);
  /// Runs a whole step with a block for each task list, all at the same time. Or kNotLaunched.
  int32_t (*run_program)(void* self, const ProgramTables* program, int32_t blocks);
  /// Waits until everything that was launched has ended, for `limit_ns` at most. Or kNotEnded: the device is lost, and
  /// nothing runs on it any more. 0: no limit.
  int32_t (*synchronize)(void* self, uint64_t limit_ns);
  const char* (*last_error)(void* self);
  void (*close)(void* self);
};

namespace detail {
template <auto member>
struct TableEntry;
template <class Device, class Returned, class... Args, Returned (Device::*member)(Args...)>
struct TableEntry<member> {
  static Returned call(void* self, Args... args) { return (Device::of(self).*member)(args...); }
};
}  // namespace detail

/// The table of a class with a member for each function. Device::of(void*) gives the device back.
template <class Device>
TileDevice table_of(Device* device, const char* name) {
  TileDevice table = {};
  table.abi = kTileDeviceAbi;
  table.name = name;
  table.self = device;
#define REDLINE_ENTRY(function) table.function = detail::TableEntry<&Device::function>::call;
  REDLINE_ENTRY(allocate)
  REDLINE_ENTRY(release)
  REDLINE_ENTRY(memory)
  REDLINE_ENTRY(upload)
  REDLINE_ENTRY(download)
  REDLINE_ENTRY(stage)
  REDLINE_ENTRY(upload_staged)
  REDLINE_ENTRY(end_staging)
  REDLINE_ENTRY(copy)
  REDLINE_ENTRY(clear)
  REDLINE_ENTRY(launch)
  REDLINE_ENTRY(can_multiply)
  REDLINE_ENTRY(multiply)
  REDLINE_ENTRY(begin_capture)
  REDLINE_ENTRY(end_capture)
  REDLINE_ENTRY(launch_graph)
  REDLINE_ENTRY(release_graph)
  REDLINE_ENTRY(run_program)
  REDLINE_ENTRY(synchronize)
  REDLINE_ENTRY(last_error)
  REDLINE_ENTRY(close)
#undef REDLINE_ENTRY
  return table;
}

}  // namespace redline::tiles
