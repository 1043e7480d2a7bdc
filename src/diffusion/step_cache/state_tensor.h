// Values of one row that a step cache reads, keeps and writes, on the host or in the memory of the back end. The back
// end then also computes with them (BufferMath, graph/program.h), and the host gets only sums.
#pragma once

#include <span>
#include <vector>

#include "backends/backend_memory.h"

namespace redline {

/// A view of float32 values, which it does not own.
class StateView {
 public:
  StateView() = default;
  StateView(std::span<const float> host)  // NOLINT(google-explicit-constructor): most callers have one
      : host_(const_cast<float*>(host.data())), size_(std::ssize(host)) {}
  StateView(std::span<float> host)
      : host_(host.data()), size_(std::ssize(host)) {}  // NOLINT(google-explicit-constructor)
  StateView(const std::vector<float>& host)             // NOLINT(google-explicit-constructor)
      : StateView(std::span<const float>(host)) {}
  StateView(std::vector<float>& host) : StateView(std::span<float>(host)) {}  // NOLINT(google-explicit-constructor)
  /// `begin` and `size` count values.
  StateView(BackendBuffer& buffer, int64_t begin, int64_t size) : buffer_(&buffer), begin_(begin), size_(size) {}

  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  /// Returns the values on the host, for reading and writing; values on a device are copied to the host.
  std::span<float> host() const {
    float* const data = buffer_ ? reinterpret_cast<float*>(buffer_->host()) + begin_ : host_;
    return {data, static_cast<size_t>(size_)};
  }
  /// Returns the device's arithmetic; nullptr: the host computes.
  BufferMath* math() const { return buffer_ ? buffer_->math() : nullptr; }
  BufferMath::Part part() const { return {buffer_, begin_}; }

 private:
  float* host_ = nullptr;
  BackendBuffer* buffer_ = nullptr;
  int64_t begin_ = 0, size_ = 0;
};

/// Owned float32 values, in the same memory as the values that they are made of, or on the host if the back end has no
/// room.
class StateTensor {
 public:
  StateTensor() = default;
  StateTensor(std::vector<float> host) : host_(std::move(host)), size_(std::ssize(host_)) {}  // NOLINT
  operator StateView() const {  // NOLINT(google-explicit-constructor): a tensor is read as its view
    return buffer_ ? StateView(*buffer_, 0, size_) : StateView(const_cast<std::vector<float>&>(host_));
  }
  StateView view() const { return *this; }
  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  float operator[](int64_t i) const { return view().host()[static_cast<size_t>(i)]; }
  /// Resizes to the size of `like`, in the same memory; contents are undefined.
  void resize_like(const StateView& like);
  void assign(const StateView& from);

 private:
  std::vector<float> host_;
  std::unique_ptr<BackendBuffer> buffer_;
  int64_t size_ = 0;
};

/// Computes out = a - b in float32. All have the same length.
void subtract(const StateView& a, const StateView& b, const StateView& out);
/// Computes out = base + sum of weights * tensors. Tensors whose weight is 0, and empty ones, are not read. `base` may
/// be empty.
void weighted_sum(const StateView& base, std::span<const double> weights, std::span<const StateView> tensors,
                  const StateView& out);

}  // namespace redline
