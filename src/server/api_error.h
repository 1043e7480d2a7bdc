// Errors of the API: the status, and the body in the shape of OpenAI's, Anthropic's or Ollama's API.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/error.h"

namespace redline::server {

class PendingLoad;

/// An error of the API.
struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param;         ///< the field with the error: "messages[2].role"; "": none
  std::string code;          ///< "context_length_exceeded"; "": none
  double retry_after_s = 0;  ///< set for 429 and 503; 0: no header
  std::string allow = {};    ///< value of the header Allow, set for 405
  /// Set if the model is being loaded: the request is handled again after that.
  std::shared_ptr<PendingLoad> load = nullptr;
};

inline ApiError bad_request(std::string param, std::string message, std::string code = "") {
  return {.message = std::move(message), .param = std::move(param), .code = std::move(code)};
}
inline ApiError not_found_error(std::string param, std::string message, std::string code) {
  return {.status = 404,
          .type = "not_found_error",
          .message = std::move(message),
          .param = std::move(param),
          .code = std::move(code)};
}
inline ApiError overloaded(int status, std::string message, double retry_after_s) {
  return {.status = status,
          .type = status == 429 ? "rate_limit_error" : "unavailable_error",
          .message = std::move(message),
          .code = status == 429 ? "rate_limit_exceeded" : "unavailable",
          .retry_after_s = retry_after_s};
}
inline ApiError not_loaded(std::shared_ptr<PendingLoad> load) {
  ApiError error = overloaded(503, "the model is being loaded", 1);
  error.load = std::move(load);
  return error;
}
/// Converts an engine error to the API error; `param` is the field it is about.
ApiError api_error(const Status& status, std::string param = "");

/// A value, or the error to answer instead.
template <class T>
class [[nodiscard]] Outcome {
 public:
  Outcome(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor): return value;
  Outcome(ApiError error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor): return error;
  bool ok() const { return value_.has_value(); }
  T& operator*() { return *value_; }
  T* operator->() { return &*value_; }
  const ApiError& error() const { return error_; }

 private:
  std::optional<T> value_;
  ApiError error_;
};

/// The shape of an error's body.
enum class ErrorShape : uint8_t {
  kOpenAi,     ///< {"error": {"message", "type", "param", "code"}}
  kAnthropic,  ///< {"type": "error", "error": {"type", "message"}}
  kOllama,     ///< {"error": "message"}
};
std::string error_body(const ApiError& error, ErrorShape shape);

#define SERVER_CONCAT_(a, b) a##b
#define SERVER_CONCAT(a, b) SERVER_CONCAT_(a, b)
/// SERVER_ASSIGN(auto x, f()): assigns the value of an Outcome, or returns its error.
#define SERVER_ASSIGN(target, expr) SERVER_ASSIGN_(SERVER_CONCAT(server_outcome_, __LINE__), target, expr)
#define SERVER_ASSIGN_(outcome, target, expr) \
  auto outcome = (expr);                      \
  if (!outcome.ok()) return outcome.error();  \
  target = std::move(*outcome)

}  // namespace redline::server
