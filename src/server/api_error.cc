#include "server/api_error.h"

#include "server/json.h"

namespace redline::server {
namespace {

/// Returns the message with the field's name, for shapes that have no member for the name.
std::string named_message(const ApiError& error) {
  const bool is_named = error.param.empty() || error.message.starts_with(error.param);
  return is_named ? error.message : error.param + ": " + error.message;
}

}  // namespace

ApiError api_error(const Status& status, std::string param) {
  ApiError error{.message = status.message(), .param = std::move(param)};
  switch (status.code()) {
    case Code::invalid_argument:
    case Code::unsupported: break;
    case Code::not_found:
      error.status = 404;
      error.type = "not_found_error";
      error.code = "not_found";
      break;
    case Code::out_of_memory:
    case Code::out_of_device_memory: {
      const double retry_after_s = 1;
      ApiError busy = overloaded(503, status.message(), retry_after_s);
      busy.param = error.param;
      return busy;
    }
    default:
      error.status = 500;
      error.type = "server_error";
      error.code = std::string(code_name(status.code()));
  }
  return error;
}

std::string error_body(const ApiError& error, ErrorShape shape) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  switch (shape) {
    case ErrorShape::kAnthropic: {
      const char* type = error.type.c_str();
      if (error.status == 503) type = "overloaded_error";
      if (error.status == 500) type = "api_error";
      if (error.status == 413) type = "request_too_large";
      return to_text({{"type", "error"}, {"error", {{"type", type}, {"message", named_message(error)}}}});
    }
    case ErrorShape::kOllama: return to_text({{"error", named_message(error)}});
    case ErrorShape::kOpenAi: break;
  }
  return to_text({{"error",
                   {{"message", error.message},
                    {"type", error.type},
                    {"param", or_null(error.param)},
                    {"code", or_null(error.code)}}}});
}

}  // namespace redline::server
