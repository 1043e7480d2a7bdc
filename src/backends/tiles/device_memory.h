// Memory of a tile device, and the device's functions with Status results.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "backends/tiles/library_choice.h"
#include "base/error.h"
#include "kernels/tiles/tile_device.h"

namespace redline {

/// Device memory that stays unused: for the driver's own structures, and for allocations of a step that is larger than
/// all steps before.
inline constexpr int64_t kDeviceReserve = int64_t{512} << 20;

/// Converts bytes to GiB, for messages.
inline double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

/// A device that runs tile programs. Programs, buffers and states of the device share it; the last of them closes it.
/// Its functions are called by one thread at a time.
class OpenDevice {
 public:
  /// Takes ownership of the table.
  explicit OpenDevice(tiles::TileDevice* table) : table_(table) {}
  ~OpenDevice() { table_->close(table_->self); }
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  tiles::TileDevice& table() const { return *table_; }
  const char* name() const { return table_->name; }
  int multiprocessors() const { return table_->multiprocessors; }
  Status allocate(int64_t bytes, bool is_constant, void** memory) {
    return call([&] { return table_->allocate(table_->self, bytes, is_constant ? 1 : 0, memory); });
  }
  /// Bytes that can still be allocated, and all bytes of the device.
  struct Memory {
    int64_t free = 0, total = 0;
    /// Returns the bytes that stay unused; tests have devices smaller than kDeviceReserve.
    int64_t reserve() const { return std::min(kDeviceReserve, total / 16); }
    int64_t usable() const { return std::max<int64_t>(0, free - reserve()); }
  };
  Result<Memory> memory() {
    Memory m;
    REDLINE_TRY(call([&] { return table_->memory(table_->self, &m.free, &m.total); }));
    return m;
  }
  void release(void* memory) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    table_->release(table_->self, memory);
  }
  Status upload(void* to, const void* from, int64_t bytes) {
    return call([&] { return table_->upload(table_->self, to, from, bytes); });
  }
  Status download(void* to, const void* from, int64_t bytes) {
    return call([&] { return table_->download(table_->self, to, from, bytes); });
  }
  /// stage(), upload_staged() and end_staging() are for StagedUpload only.
  Status stage(int64_t total, void** memory, int64_t* bytes) {
    return call([&] { return table_->stage(table_->self, total, memory, bytes); });
  }
  Status upload_staged(void* to, const void* from, int64_t bytes) {
    return call([&] { return table_->upload_staged(table_->self, to, from, bytes); });
  }
  Status end_staging() {
    return call([&] { return table_->end_staging(table_->self); });
  }
  Status copy(void* to, const void* from, int64_t bytes) {
    return call([&] { return table_->copy(table_->self, to, from, bytes); });
  }
  Status clear(void* to, int64_t bytes) {
    return call([&] { return table_->clear(table_->self, to, bytes); });
  }
  Status launch(const tiles::ProgramTables& program, int32_t stage, tiles::KernelId kernel, int32_t blocks) {
    return call([&] { return table_->launch(table_->self, &program, stage, kernel, blocks); });
  }
  /// Returns true if the library multiplies matrices of these sizes.
  bool can_multiply(int32_t rows, int32_t cols, int32_t k, tiles::ProductType type = tiles::ProductType::kBF16) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    return table_->library != nullptr && table_->can_multiply(table_->self, rows, cols, k, type) != 0;
  }
  Status multiply(const tiles::MatrixProduct& product) {
    return call([&] { return table_->multiply(table_->self, &product); });
  }
  /// Number of rows up to which programs compiled from now on use own kernels instead of the library: kOwnRows, or the
  /// value measured on this machine.
  int64_t own_rows() const { return own_rows_; }
  void set_own_rows(int64_t rows) { own_rows_ = rows; }
  /// Removes the library for all later products.
  void drop_library() { table_->library = nullptr; }
  /// Locks out other threads during a capture, because their calls would become part of the graph.
  std::unique_lock<std::recursive_mutex> hold() { return std::unique_lock(mutex_); }
  Status begin_capture() {
    return call([&] { return table_->begin_capture(table_->self); });
  }
  Status end_capture(void** graph) {
    return call([&] { return table_->end_capture(table_->self, graph); });
  }
  Status launch_graph(void* graph) {
    return call([&] { return table_->launch_graph(table_->self, graph); });
  }
  void release_graph(void* graph) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    table_->release_graph(table_->self, graph);
  }
  /// Runs a persistent step. unsupported: the device refuses the launch, and no part of it has run.
  Status run_program(const tiles::ProgramTables& program, int32_t blocks) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    const int32_t result = table_->run_program(table_->self, &program, blocks);
    if (result == 0) return {};
    return Status(result == tiles::kNotLaunched ? Code::unsupported : Code::internal, table_->last_error(table_->self));
  }
  /// Returns why no step can be persistent; "" if steps can be.
  std::string persistent_obstacle() const {
    if (!dropped_.empty()) return dropped_;
    if (table_->persistent_blocks > 0) return "";
    return table_->persistent_obstacle != nullptr ? table_->persistent_obstacle : "the device has no persistent step";
  }
  /// Makes no step of programs compiled from now on persistent.
  void drop_persistent(std::string why) { dropped_ = std::move(why); }
  /// Waits as TileDevice::synchronize().
  Status synchronize(uint64_t limit_ns = 0) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    const int32_t result = table_->synchronize(table_->self, limit_ns);
    if (result == 0) return {};
    const char* const error = table_->last_error(table_->self);
    if (result != tiles::kNotEnded) return internal("{}", error);
    return internal("{}; it has run for {:.3g} s (for longer steps raise REDLINE_HANG_SECONDS; 0: no limit)", error,
                    static_cast<double>(limit_ns) * 1e-9);
  }

 private:
  template <class Call>
  Status call(const Call& function) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    return function() == 0 ? Status() : internal("{}", table_->last_error(table_->self));
  }
  std::recursive_mutex mutex_;
  tiles::TileDevice* table_;
  int64_t own_rows_ = kOwnRows;
  std::string dropped_;  ///< why drop_persistent() was called
};

/// Checks free memory. out_of_device_memory: `bytes` and the reserve exceed the free bytes; the message has all
/// numbers.
Status check_device_memory(OpenDevice& device, int64_t bytes, std::string_view what);

/// A zeroed allocation in the memory of a device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Allocates the memory. out_of_device_memory: states the bytes. internal: the device has failed.
  static Result<DeviceMemory> make(std::shared_ptr<OpenDevice> device, int64_t bytes, bool is_constant = false);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  void swap(DeviceMemory& other) {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  std::shared_ptr<OpenDevice> device_;
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

/// Fills device memory through host buffers that the device reads directly, so the host does not copy the data a second
/// time. One buffer is filled while the device reads the other. A device has one such upload at a time.
class StagedUpload {
 public:
  /// `total` is the number of bytes that will be copied.
  StagedUpload(OpenDevice& device, int64_t total) : device_(device), total_(total) {}
  ~StagedUpload();
  StagedUpload(const StagedUpload&) = delete;
  StagedUpload& operator=(const StagedUpload&) = delete;

  /// Returns host memory to fill, whose contents are undefined: between `least` and `most` bytes, as much as a buffer
  /// holds. Empty: a buffer is smaller than `least`.
  Result<std::span<uint8_t>> place(int64_t least, int64_t most);
  /// Copies the first `bytes` of the latest place() to address `to` on the device.
  Status upload(void* to, int64_t bytes);
  /// Orders later launches after all copies.
  Status finish();

 private:
  OpenDevice& device_;
  int64_t total_;
  uint8_t* buffer_ = nullptr;
  int64_t size_ = 0, used_ = 0;
};

}  // namespace redline
