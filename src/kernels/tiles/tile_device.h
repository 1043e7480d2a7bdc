// The functions of a device that runs tile programs, as one C table. The emulated device fills it, and so does a CUDA
// module. There is no other interface to them, so the runner (backends/tiles) exists once.
#pragma once

#include <cstdint>

#include "kernels/tiles/kernels.h"

namespace redline::tiles {

/// Version of the interface. Incremented with every change of the table or of the structs that its arguments point to.
inline constexpr int32_t kTileDeviceAbi = 8;

/// Result of run_program: the device refuses the launch, and no part of it has run.
inline constexpr int32_t kNotLaunched = 2;
/// Result of synchronize: the limit has passed.
inline constexpr int32_t kNotEnded = 3;

/// Type of the factors of a product.
enum class ProductType : int32_t { kBF16, kE4M3, kI8 };

/// A product y = x w^T by a library of the device. x is [rows, k], w is [cols, k]. y [rows, cols] and its sums are
/// float32, or int32 for int8 factors. All are dense and aligned to 16 bytes; k is a multiple of 8 (of 16 for one-byte
/// factors) and cols of 4.
struct MatrixProduct {
  const void* x;
  const void* w;
  void* y;
  int32_t rows, cols, k;
  ProductType type;
};

/// The table. Functions return 0, or another number if they fail; last_error() then says why. Calls come from one
/// thread at a time.
struct TileDevice {
  int32_t abi;
  int32_t multiprocessors;
  int32_t has_warp_groups;  ///< launches may use wide_kernel()
  const char* name;         ///< "emu/sm90a"
  const char* model;        ///< "NVIDIA H200"
  const char* library;      ///< "cuBLASLt 13.0.2": multiply() is available; nullptr: there is no library
  /// Blocks of a persistent step that run at the same time. 0: the device has no persistent step, and
  /// `persistent_obstacle` says why.
  int32_t persistent_blocks;
  const char* persistent_obstacle;
  /// True if waits of kernels time out when nothing else can run, rather than after ProgramTables::deadline_ns.
  int32_t gives_up_at_once;
  void* self;
  /// Allocates zeroed memory. `is_constant`: kernels do not write it, so bulk copies may read it.
  int32_t (*allocate)(void* self, int64_t bytes, int32_t is_constant, void** memory);
  void (*release)(void* self, void* memory);
  /// Returns the bytes that can still be allocated, and the total of the device.
  int32_t (*memory)(void* self, int64_t* free, int64_t* total);
  int32_t (*upload)(void* self, void* to, const void* from, int64_t bytes);
  int32_t (*download)(void* self, void* to, const void* from, int64_t bytes);
  /// Uploads weights through buffers that the device copies from. stage() returns one of two buffers of host memory,
  /// whose last copies have ended, and its size; upload_staged() copies a part of it while the host fills the other
  /// one. Launches after end_staging() run after all copies. `total`: estimated bytes that will be staged.
  int32_t (*stage)(void* self, int64_t total, void** memory, int64_t* bytes);
  int32_t (*upload_staged)(void* self, void* to, const void* from, int64_t bytes);
  int32_t (*end_staging)(void* self);
  int32_t (*copy)(void* self, void* to, const void* from, int64_t bytes);
  int32_t (*clear)(void* self, void* to, int64_t bytes);
  /// Runs stage `stage` of a program with a block for each of its `blocks` tiles; `kernel` is the stage's kernel, or
  /// its wide_kernel(). `program` is in host memory, and its pointers are device addresses. Runs after all earlier
  /// launches.
  int32_t (*launch)(void* self, const ProgramTables* program, int32_t stage, KernelId kernel, int32_t blocks);
  /// Returns 0 if the library has no kernel for the sizes and the type.
  int32_t (*can_multiply)(void* self, int32_t rows, int32_t cols, int32_t k, ProductType type);
  /// Multiplies after all earlier launches; during a capture the product becomes part of the graph.
  int32_t (*multiply)(void* self, const MatrixProduct* product);
  /// Begins a capture: launches are recorded, not run, until end_capture() makes a graph of them. A graph can be
  /// launched repeatedly, with the current contents of its arguments.
  int32_t (*begin_capture)(void* self);
  int32_t (*end_capture)(void* self, void** graph);
  int32_t (*launch_graph)(void* self, void* graph);
  void (*release_graph)(void* self, void* graph);
  /// Runs a whole step with a block for each task list, all at the same time. May return kNotLaunched.
  int32_t (*run_program)(void* self, const ProgramTables* program, int32_t blocks);
  /// Waits until all launches have ended, for `limit_ns` at most (0: no limit). kNotEnded: the device is lost, and
  /// nothing runs on it any more.
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

/// Returns the table of a class that has a member for each function. Device::of(void*) converts `self` back to the
/// device.
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
