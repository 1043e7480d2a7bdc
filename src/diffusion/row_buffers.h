// Stores values of the rows of a batch in the memory of the back end. Executables that run some of the rows read and
// write the values in place. Values on a device stay there unless the host reads a row.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "diffusion/step_cache/state_tensor.h"
#include "runtime/executable.h"

namespace redline {

/// A buffer for one value, [rows, row_elements] float32.
class RowBuffer {
 public:
  /// Makes room for `rows` rows; contents are undefined. out_of_memory: the message has the number of bytes.
  Status resize(const Executable& executable, int64_t rows, int64_t row_elements);
  int64_t row_elements() const { return row_elements_; }
  bool empty() const { return !memory_; }
  /// Returns the address of one row on the host, valid until a row is bound.
  float* row(int64_t r) { return reinterpret_cast<float*>(memory_->host()) + r * row_elements_; }
  /// Returns a view of one row, on the host or the device.
  StateView view(int64_t r) { return {*memory_, r * row_elements_, row_elements_}; }

  /// Binds an input port to `rows` (increasing indices, not empty). Rows that are not contiguous are copied.
  void bind_input(Executable& executable, std::string_view port, std::span<const int64_t> rows);
  /// Binds an output port to `rows`; take_output() completes them after the run.
  void bind_output(Executable& executable, std::string_view port, std::span<const int64_t> rows);
  /// Binds an output port to the rows from `first` on, for a run that writes any number of rows.
  void bind_output_from(Executable& executable, std::string_view port, int64_t first);
  void take_output(std::span<const int64_t> rows);

 private:
  static bool is_contiguous(std::span<const int64_t> rows) {
    return rows.back() - rows.front() + 1 == std::ssize(rows);
  }
  int64_t row_bytes() const { return row_elements_ * int64_t{sizeof(float)}; }
  void bind(Executable& executable, std::string_view port, std::span<const int64_t> rows, bool step_writes);

  int64_t row_elements_ = 0, capacity_ = 0;
  std::unique_ptr<BackendBuffer> memory_, compact_;  ///< compact_: contiguous copy of rows that are not
};

using RowBuffers = std::map<std::string, RowBuffer, std::less<>>;

}  // namespace redline
