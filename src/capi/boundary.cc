#include "capi/boundary.h"

#include <fmt/ranges.h>

#include <span>

#include <cstdlib>
#include <exception>
#include <system_error>

namespace redline::capi {
namespace {

/// Returns the error that is given if there is no memory for another one. It is never freed.
redline_error& no_memory() {
  static redline_error error{REDLINE_OUT_OF_MEMORY, "out of memory"};
  return error;
}

/// The first call allocates, so it is made when the library is loaded, not when memory is short.
[[maybe_unused]] const redline_error* const kNoMemoryIsReady = &no_memory();

redline_code code_of(Code code) {
  switch (code) {
    case Code::ok: return REDLINE_OK;
    case Code::invalid_argument: return REDLINE_INVALID_ARGUMENT;
    case Code::not_found: return REDLINE_NOT_FOUND;
    case Code::unsupported: return REDLINE_UNSUPPORTED;
    case Code::out_of_memory:
    case Code::out_of_device_memory: return REDLINE_OUT_OF_MEMORY;
    case Code::cancelled: return REDLINE_CANCELLED;
    case Code::io: return REDLINE_IO;
    case Code::internal: break;
  }
  return REDLINE_INTERNAL;
}

}  // namespace

redline_code report(const Status& status, redline_error** error) noexcept {
  const redline_code code = code_of(status.code());
  if (status.ok() || error == nullptr) return code;
  try {
    *error = new redline_error{code, status.message()};
    return code;
  } catch (...) {
    *error = &no_memory();
    return REDLINE_OUT_OF_MEMORY;
  }
}

redline_code report_exception(redline_error** error) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    if (error != nullptr) *error = &no_memory();
    return REDLINE_OUT_OF_MEMORY;
  } catch (const std::system_error& exception) {
    try {
      if (exception.code() == std::errc::resource_unavailable_try_again)
        return report(out_of_memory("the system starts no further thread: {}", exception.what()), error);
      return report(internal("an exception: {}", exception.what()), error);
    } catch (...) {}
  } catch (const std::exception& exception) {
    try {
      return report(internal("an exception: {}", exception.what()), error);
    } catch (...) {}
  } catch (...) {}
  if (error != nullptr) *error = &no_memory();
  return REDLINE_INTERNAL;
}

Result<std::string_view> text_of(const char* text, size_t length, const char* what) {
  if (text == nullptr && length == 0) return std::string_view();
  REDLINE_TRY(required(text, what));
  return length == REDLINE_STRING_END ? std::string_view(text) : std::string_view(text, length);
}

Result<std::vector<std::string>> strings_of(const char* const* list, size_t count, const char* what) {
  std::vector<std::string> strings;
  if (count == 0) return strings;
  REDLINE_TRY(required(list, what));
  strings.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (list[i] == nullptr) return invalid_argument("{}[{}] is NULL", what, i);
    strings.emplace_back(list[i]);
  }
  return strings;
}

Status give_text(std::string_view text, char** out, size_t* length) {
  *out = static_cast<char*>(std::malloc(text.size() + 1));
  if (*out == nullptr) return out_of_memory("no room for {} bytes of text", text.size());
  std::copy(text.begin(), text.end(), *out);
  (*out)[text.size()] = '\0';
  if (length != nullptr) *length = text.size();
  return {};
}

Result<std::vector<int64_t>> shape_of(const int64_t* sides, size_t num_axes, std::string_view what) {
  const std::span<const int64_t> shape(sides, num_axes);
  int64_t size = 1;
  for (const int64_t n : shape)
    if (n <= 0 || __builtin_mul_overflow(size, n, &size) || size > int64_t{1} << 40)
      return invalid_argument("{}: shape [{}]", what, fmt::join(shape, ", "));
  return std::vector<int64_t>(shape.begin(), shape.end());
}

Status check_struct_size(size_t size, size_t own_size, size_t alignment, const char* name) {
  constexpr size_t kMaxSize = 65536;  // larger values are uninitialized memory
  // A compiler pads the size of a struct to its alignment, and every struct has a field besides its size.
  if (size > sizeof(size_t) && size <= kMaxSize && size % alignment == 0) return {};
  return invalid_argument(
      "{}: struct_size is {}, the struct has {} bytes; set struct_size to its sizeof, which the "
      "init function does",
      name, size, own_size);
}

Status check_unknown_fields(const unsigned char* begin, const unsigned char* end, const char* name) {
  if (std::all_of(begin, end, [](unsigned char byte) { return byte == 0; })) return {};
  return unsupported("{}: a field is set that version {} of the library does not have; load a newer libredline.so",
                     name, redline_version());
}

const void*& engine_of_callback() {
  thread_local const void* engine = nullptr;
  return engine;
}

}  // namespace redline::capi

redline_code redline_error_code(const redline_error* error) { return error != nullptr ? error->code : REDLINE_OK; }
const char* redline_error_message(const redline_error* error) { return error != nullptr ? error->message.c_str() : ""; }
void redline_error_free(redline_error* error) {
  if (error != &redline::capi::no_memory()) delete error;
}

void redline_free(void* text_or_array) { std::free(text_or_array); }

const char* redline_code_name(redline_code code) {
  switch (code) {
    case REDLINE_OK: return "ok";
    case REDLINE_INVALID_ARGUMENT: return "invalid_argument";
    case REDLINE_NOT_FOUND: return "not_found";
    case REDLINE_UNSUPPORTED: return "unsupported";
    case REDLINE_OUT_OF_MEMORY: return "out_of_memory";
    case REDLINE_CANCELLED: return "cancelled";
    case REDLINE_IO: return "io";
    case REDLINE_INTERNAL: return "internal";
    default: return "unknown";
  }
}

redline_code redline_canceller_create(redline_canceller** canceller, redline_error** error) {
  return redline::capi::guarded(error, [&]() -> redline::Status {
    REDLINE_TRY(redline::capi::required(canceller, "canceller"));
    *canceller = nullptr;
    *canceller = new redline_canceller;
    return {};
  });
}
void redline_canceller_cancel(redline_canceller* canceller) {
  if (canceller != nullptr) canceller->is_cancelled.store(true, std::memory_order_relaxed);
}
void redline_canceller_reset(redline_canceller* canceller) {
  if (canceller != nullptr) canceller->is_cancelled.store(false, std::memory_order_relaxed);
}
void redline_canceller_release(redline_canceller* canceller) { delete canceller; }
