// Counts what a tile device is asked to do between two moments.
#pragma once

#include <algorithm>

#include "runtime/runtime_resources.h"
#include "support/test_device.h"

namespace redline::testing {

struct DeviceCounts {
  int64_t downloads = 0, download_bytes = 0, largest_download = 0;
  int64_t captures = 0;
};

/// While it lives, calls of the runtime's test device are counted. One at a time: the table has plain functions.
class CountedDevice {
 public:
  explicit CountedDevice(RuntimeResources& runtime)
      : CountedDevice(runtime.device(choose_device(test::test_device()).value()).value()) {}
  explicit CountedDevice(std::shared_ptr<OpenDevice> device) : device_(std::move(device)) {
    tiles::TileDevice& table = device_->table();
    counts_ = {};
    download_ = table.download;
    begin_capture_ = table.begin_capture;
    table.download = [](void* self, void* to, const void* from, int64_t bytes) {
      ++counts_.downloads;
      counts_.download_bytes += bytes;
      counts_.largest_download = std::max(counts_.largest_download, bytes);
      return download_(self, to, from, bytes);
    };
    table.begin_capture = [](void* self) {
      ++counts_.captures;
      return begin_capture_(self);
    };
  }
  ~CountedDevice() {
    device_->table().download = download_;
    device_->table().begin_capture = begin_capture_;
  }
  CountedDevice(const CountedDevice&) = delete;
  CountedDevice& operator=(const CountedDevice&) = delete;

  const DeviceCounts& counts() const { return counts_; }
  /// Returns the counts since the last call.
  static DeviceCounts take() { return std::exchange(counts_, {}); }

 private:
  std::shared_ptr<OpenDevice> device_;
  static inline DeviceCounts counts_;
  static inline decltype(tiles::TileDevice::download) download_ = nullptr;
  static inline decltype(tiles::TileDevice::begin_capture) begin_capture_ = nullptr;
};

}  // namespace redline::testing
