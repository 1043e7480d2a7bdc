// Creating and propagating errors: the helpers behind <redline/status.h>.
#pragma once

#include <fmt/format.h>

#include "redline/status.h"

namespace redline {

#define REDLINE_STATUS_MAKER(name)                                          \
  template <class... A>                                                     \
  Status name(fmt::format_string<A...> text, A&&... args) {                 \
    return Status(Code::name, fmt::format(text, std::forward<A>(args)...)); \
  }
REDLINE_STATUS_MAKER(invalid_argument)
REDLINE_STATUS_MAKER(not_found)
REDLINE_STATUS_MAKER(unsupported)
REDLINE_STATUS_MAKER(out_of_memory)
REDLINE_STATUS_MAKER(cancelled)
REDLINE_STATUS_MAKER(io)
REDLINE_STATUS_MAKER(internal)
REDLINE_STATUS_MAKER(out_of_device_memory)
#undef REDLINE_STATUS_MAKER

namespace detail {
inline Status as_status(Status status) { return status; }
template <class T>
Status as_status(Result<T> result) {
  return std::move(result).status();
}
[[noreturn]] void check_failed(const char* file, int line, const char* condition);
}  // namespace detail

#define REDLINE_CONCAT_(a, b) a##b
#define REDLINE_CONCAT(a, b) REDLINE_CONCAT_(a, b)

/// Returns from the calling function if a Status or Result is an error.
#define REDLINE_TRY(expr)                                                               \
  do {                                                                                  \
    auto&& redline_try = (expr);                                                        \
    if (!redline_try.ok()) return ::redline::detail::as_status(std::move(redline_try)); \
  } while (0)

/// REDLINE_ASSIGN(auto x, f()): assigns the value of the Result, or returns its error.
#define REDLINE_ASSIGN(target, expr) REDLINE_ASSIGN_(REDLINE_CONCAT(redline_result_, __LINE__), target, expr)
#define REDLINE_ASSIGN_(result, target, expr)          \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  target = std::move(result).value()

/// Aborts with file and line if the condition is false. For internal bugs, never for bad input.
#define REDLINE_CHECK(condition) \
  ((condition) ? void(0) : ::redline::detail::check_failed(__FILE__, __LINE__, #condition))
#ifdef NDEBUG
#define REDLINE_DCHECK(condition) void(0)
#else
#define REDLINE_DCHECK(condition) REDLINE_CHECK(condition)
#endif

}  // namespace redline
