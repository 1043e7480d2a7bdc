// The boundary of the C interface, which all its functions use: errors become objects, exceptions become errors, and
// structs are read and written up to the caller's struct_size.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "redline/c_api.h"

struct redline_error {
  redline_code code = REDLINE_INTERNAL;
  std::string message;
};

struct redline_canceller {
  std::atomic<bool> is_cancelled{false};
};

namespace redline::capi {

/// Sets `error`, unless it is NULL, and returns the code.
redline_code report(const Status& status, redline_error** error) noexcept;
redline_code report_exception(redline_error** error) noexcept;

/// Runs `body`, which returns a Status, and catches all exceptions.
template <class F>
redline_code guarded(redline_error** error, F&& body) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    return report(std::forward<F>(body)(), error);
  } catch (...) {
    return report_exception(error);
  }
}

/// Returns invalid_argument for a NULL pointer. `what`: the parameter's name.
inline Status required(const void* pointer, const char* what) {
  return pointer != nullptr ? Status() : invalid_argument("{} is NULL", what);
}

inline std::string text_or_empty(const char* text) { return text != nullptr ? text : ""; }
/// Returns a text of `length` bytes, or up to a zero byte for REDLINE_STRING_END. NULL is an error unless the length is
/// 0.
Result<std::string_view> text_of(const char* text, size_t length, const char* what);
/// Returns a list of `count` strings, none of which may be NULL.
Result<std::vector<std::string>> strings_of(const char* const* list, size_t count, const char* what);

/// Copies a text for the caller, who frees it with redline_free().
Status give_text(std::string_view text, char** out, size_t* length);
template <class T>
Status give_array(const std::vector<T>& values, T** out) {
  static_assert(std::is_trivially_copyable_v<T>);
  // At least one byte is allocated, because NULL would look like a failure.
  *out = static_cast<T*>(std::malloc(std::max<size_t>(1, values.size() * sizeof(T))));
  if (*out == nullptr) return out_of_memory("no room for {} bytes", values.size() * sizeof(T));
  std::copy(values.begin(), values.end(), *out);
  return {};
}

/// Implements redline_X_init: writes the first `size` bytes of the defaults. Fields that this library does not have
/// become zero.
template <class T>
void init_struct(T* out, size_t size, T defaults) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  if (out == nullptr || size < sizeof(size_t)) return;
  std::memset(static_cast<void*>(out), 0, size);
  defaults.struct_size = size;
  std::memcpy(static_cast<void*>(out), &defaults, std::min(size, sizeof(T)));
}

/// Returns true if the canceller is cancelled; NULL is never cancelled.
inline bool is_cancelled(const redline_canceller* canceller) {
  return canceller != nullptr && canceller->is_cancelled.load(std::memory_order_relaxed);
}

/// Returns the shape of a caller's array. Sides must be at least 1, and the elements at most 2^40. `what`: name for
/// errors.
Result<std::vector<int64_t>> shape_of(const int64_t* sides, size_t num_axes, std::string_view what);

/// Checks struct_size of a caller's struct, which may be that of an older or a newer version of the interface.
/// `own_size` and `alignment`: those of this library's struct, whose fields are only ever added at the end.
Status check_struct_size(size_t size, size_t own_size, size_t alignment, const char* name);
Status check_unknown_fields(const unsigned char* begin, const unsigned char* end, const char* name);

/// Reads a caller's struct. Fields that a smaller struct lacks have their defaults; a struct may be larger than this
/// library's if the unknown fields are zero. NULL: the defaults.
template <class T>
Result<T> read_struct(const T* given, T defaults, const char* name) {
  if (given == nullptr) return defaults;
  const size_t size = given->struct_size;
  REDLINE_TRY(check_struct_size(size, sizeof(T), alignof(T), name));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof(T)) REDLINE_TRY(check_unknown_fields(bytes + sizeof(T), bytes + size, name));
  std::memcpy(static_cast<void*>(&defaults), given, std::min(size, sizeof(T)));
  return defaults;
}

/// Fills a caller's struct up to its struct_size, which is kept.
template <class T>
Status write_struct(T* out, T value, const char* name) {
  REDLINE_TRY(required(out, name));
  const size_t size = out->struct_size;
  REDLINE_TRY(check_struct_size(size, sizeof(T), alignof(T), name));
  init_struct(out, size, value);
  return {};
}

/// The process that opened a handle. A forked child does not have its threads.
class Process {
 public:
  bool is_current() const { return id_ == getpid(); }
  Status check(const char* what) const {
    if (is_current()) return {};
    return invalid_argument(
        "the {} was opened before fork(): this process has none of its threads; open it in the child process", what);
  }

 private:
  pid_t id_ = getpid();
};

/// Returns the engine whose callback this thread runs, or null.
const void*& engine_of_callback();
class CallbackScope {
 public:
  explicit CallbackScope(const void* engine) : before_(std::exchange(engine_of_callback(), engine)) {}
  ~CallbackScope() { engine_of_callback() = before_; }
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

 private:
  const void* before_;
};

/// Returns an error if this thread runs a callback of `engine`, which takes one call at a time: the call would wait for
/// itself.
inline Status check_not_in_callback(const void* engine, const char* what) {
  if (engine_of_callback() != engine) return {};
  return invalid_argument("a callback of the {} must not call it: it takes one call at a time", what);
}

/// Drops a reference that may be the last one. An engine joins its threads when it closes. In one of its callbacks it
/// is therefore closed by another thread. In a forked child, which does not have its threads, it is never closed.
template <class T>
void drop(std::shared_ptr<T> last, const Process& process) noexcept {
  if (!last) return;
  if (!process.is_current()) {
    new (std::nothrow) std::shared_ptr<T>(std::move(last));  // never deleted
    return;
  }
  if (engine_of_callback() == nullptr) return;
  try {
    std::thread([last = std::move(last)]() mutable { last.reset(); }).detach();
  } catch (...) {
    new (std::nothrow) std::shared_ptr<T>(std::move(last));
  }
}

/// A counted handle with shared contents.
template <class T>
struct Counted {
  explicit Counted(std::shared_ptr<T> contents) : shared(std::move(contents)) {}
  std::atomic<int64_t> references{1};
  const Process process = {};
  std::shared_ptr<T> shared;
};
template <class H>
H* retain(H* handle) noexcept {
  if (handle != nullptr) handle->references.fetch_add(1, std::memory_order_relaxed);
  return handle;
}
template <class H>
void release(H* handle) noexcept {
  if (handle == nullptr || handle->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  drop(std::move(handle->shared), handle->process);
  delete handle;
}
/// Checks that a handle is not NULL and was opened by this process.
template <class H>
Status usable(const H* handle, const char* what) {
  REDLINE_TRY(required(handle, what));
  return handle->process.check(what);
}

}  // namespace redline::capi
