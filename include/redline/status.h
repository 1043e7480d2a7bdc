// Result types of the calls that can fail.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace redline {

/// Kinds of failure. One table (src/base/status.cc) maps each to its name and process exit code.
enum class Code : uint8_t {
  ok,
  invalid_argument,
  not_found,
  unsupported,
  out_of_memory,
  cancelled,
  io,
  internal,
  out_of_device_memory,  ///< the memory of a GPU is full; has the name and the exit code of out_of_memory
};
/// Returns true if the memory of this machine or of a GPU is full.
constexpr bool is_out_of_memory(Code code) { return code == Code::out_of_memory || code == Code::out_of_device_memory; }

/// Returns the name used in messages, JSON and documentation: "invalid_argument" and so on.
std::string_view code_name(Code code);
/// Returns the process exit code: ok 0, internal 1, invalid_argument 2, not_found 3, unsupported 4, out_of_memory 5, io
/// 6, cancelled 130 (as after Ctrl-C).
int exit_code(Code code);

/// Success, or a code and a message that names the file or op, the actual and expected values, and the fix.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  /// Returns "not_found: model x.gguf: no such file", or "ok".
  std::string to_string() const;
  /// Returns the failure with a location prepended to its message: within("layers.3") gives "layers.3: ...". Success is
  /// unchanged.
  Status within(std::string_view place) &&;
  Status within(std::string_view place) const&;

 private:
  Code code_ = Code::ok;
  std::string message_;
};

namespace detail {
/// Prints the status and aborts.
[[noreturn]] void no_value(const Status& status);
}  // namespace detail

/// A value, or the Status that explains why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor): return value;
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor): return error;
    if (status_.ok()) status_ = Status(Code::internal, "a Result was made from an ok Status");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }
  /// Requires ok(): without a value the process prints the status and aborts.
  T& value() & { return checked(), *value_; }
  const T& value() const& { return checked(), *value_; }
  T&& value() && { return checked(), std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Result within(std::string_view place) && {
    if (!ok()) status_ = std::move(status_).within(place);
    return std::move(*this);
  }

 private:
  void checked() const {
    if (!value_) detail::no_value(status_);
  }
  std::optional<T> value_;
  Status status_;
};

}  // namespace redline
