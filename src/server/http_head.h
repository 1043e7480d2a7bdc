// Checks the head of an HTTP request that Beast has parsed, and converts it to an HttpRequest. It uses no sockets, so
// that a fuzz target can call it.
#pragma once

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/message.hpp>
#include <iterator>
#include <string>
#include <string_view>

#include "base/ascii.h"
#include "server/http.h"

namespace redline::server::sockets {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using ErrorCode = boost::system::error_code;

/// The reason to refuse a head that Beast accepts: a proxy in front might read it in another way, or the body has an
/// encoding that the server does not decode.
struct HeadProblem {
  const char* param = nullptr;    ///< name of the header, in lower case; null: no problem
  const char* message = nullptr;  ///< null: no problem
};
/// Returns the first problem of a head.
template <class Head>
HeadProblem problem_of(const Head& head) {
  const auto count = [&](http::field name) {
    return std::distance(head.equal_range(name).first, head.equal_range(name).second);
  };
  if (count(http::field::host) > 1) return {"host", "the header Host is given more than once"};
  if (head.version() == 11 && count(http::field::host) == 0) return {"host", "the header Host is missing"};
  if (count(http::field::content_length) > 1)
    return {"content-length", "the header Content-Length is given more than once"};
  // Beast accepts a list of equal numbers too.
  const auto length = head[http::field::content_length];
  if (std::find(length.begin(), length.end(), ',') != length.end())
    return {"content-length", "the header Content-Length is a list"};
  if (count(http::field::transfer_encoding) > 0) {
    if (count(http::field::content_length) > 0)
      return {"transfer-encoding", "Transfer-Encoding and Content-Length exclude each other"};
    if (count(http::field::transfer_encoding) > 1 || !beast::iequals(head[http::field::transfer_encoding], "chunked"))
      return {"transfer-encoding", "the only transfer encoding is chunked"};
    if (head.version() < 11) return {"transfer-encoding", "HTTP/1.0 has no transfer encodings"};
  }
  if (count(http::field::content_encoding) > 0 && !beast::iequals(head[http::field::content_encoding], "identity"))
    return {"content-encoding", "compressed bodies are not supported"};
  return {};
}

/// Returns the header that a parse error is about, or "".
inline std::string param_of(const ErrorCode& error) {
  if (error == http::error::bad_content_length) return "content-length";
  if (error == http::error::bad_transfer_encoding || error == http::error::bad_chunk ||
      error == http::error::bad_chunk_extension)
    return "transfer-encoding";
  return "";
}

/// Returns a request with the method, path (not decoded), query, headers and id of a head. An invalid X-Request-Id is
/// replaced by a new id. The connection sets the other fields.
template <class Head>
HttpRequest request_of_head(const Head& head) {
  HttpRequest request;
  request.method = std::string(head.method_string());
  const auto [path, query] = split_target(std::string_view(head.target().data(), head.target().size()));
  request.path = path;
  request.query = query;
  for (const auto& field : head) {
    const auto name = field.name_string();  // boost's string_view
    request.headers.emplace_back(ascii_lower(std::string_view(name.data(), name.size())), std::string(field.value()));
  }
  const std::string_view id = request.header("x-request-id");
  request.id = is_request_id(id) ? std::string(id) : new_request_id();
  return request;
}

}  // namespace redline::server::sockets
