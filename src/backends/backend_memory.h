// Memory of a back end that outlives steps: pages of states, and buffers for external values with arithmetic on them.
#pragma once

#include <memory>
#include <span>

#include "base/error.h"

namespace redline {

/// The pages of the state groups of one program, in the memory of its device.
class StateMemory {
 public:
  virtual ~StateMemory() = default;
  /// Address of page 0 of a group.
  virtual uint8_t* pages(size_t group) = 0;
  virtual void copy_page(size_t group, int64_t from, int64_t to) = 0;
  virtual void clear_page(size_t group, int64_t page) = 0;
  /// States that the contents of pages [begin, end) are no longer needed. Their memory may be returned to the system
  /// until they are written again.
  virtual void discard_pages(size_t group, int64_t begin, int64_t end) {}
  /// Returns true if the host may read and write at pages(group). If not, it must copy pages with download_page() and
  /// upload_page().
  virtual bool is_host_memory(size_t group) const { return true; }
  virtual Status download_page(size_t group, int64_t page, uint8_t* to) { return no_copies(); }
  virtual Status upload_page(size_t group, int64_t page, const uint8_t* from) { return no_copies(); }

 private:
  static Status no_copies() { return internal("pages in host memory are not copied"); }
};

class BackendBuffer;

/// Arithmetic with float32 numbers in buffers of a device, without the host.
class BufferMath {
 public:
  virtual ~BufferMath() = default;
  /// A part of a buffer that starts at number `begin`. Without a buffer the part is all zeros.
  struct Part {
    BackendBuffer* buffer = nullptr;
    int64_t begin = 0;
  };
  /// Identifies the device: parts of buffers with the same device may be used in one call.
  virtual const void* device() const = 0;
  /// Computes to = base + sum of weights[k] * tensors[k], in the order of k.
  virtual Status weighted_sum(Part to, Part base, std::span<const float> weights, std::span<const Part> tensors,
                              int64_t elements) = 0;
  /// Returns the sum of |a - b|. Differences are float32, sums float64, in an order that depends on `elements` only.
  virtual Result<double> distance(Part a, Part b, int64_t elements) = 0;
  /// Returns the sum of (a - b) (c - d), with the same rounding and order as distance().
  virtual Result<double> product(Part a, Part b, Part c, Part d, int64_t elements) = 0;
};

/// Memory of a back end that outlives steps, for external values. A buffer on a device also has a host copy, which is
/// allocated and updated only when the host reads it.
class BackendBuffer {
 public:
  virtual ~BackendBuffer() = default;
  /// Returns the address for Runner::bind, valid until the next call of host(). `step_writes`: true if the step writes
  /// the value, false if it only reads it.
  virtual uint8_t* address(bool step_writes) = 0;
  /// Returns the contents for the host to read and write, valid as long as no step runs and address() is not called.
  virtual uint8_t* host() = 0;
  /// Copies bytes of `from`, a buffer of the same back end, without the host.
  virtual void copy(int64_t to, BackendBuffer& from, int64_t begin, int64_t bytes) = 0;
  /// Returns a new buffer of the same back end.
  virtual Result<std::unique_ptr<BackendBuffer>> make_like(int64_t bytes) = 0;
  /// Returns nullptr if the host must compute with host().
  virtual BufferMath* math() { return nullptr; }
};

}  // namespace redline
