// Reads any bytes as an HTTP request, without sockets: Beast's parser with limits of head and body, the server's checks
// of the parsed head, the target, and the id.
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "fuzz_input.h"
#include "server/http_head.h"

using namespace redline;
using namespace redline::server;

namespace {

/// Splits and decodes a target, and checks its path and query.
void check_target(std::string_view target) {
  const auto [path, query] = split_target(target);
  require(path.size() + query.size() <= target.size() + 1 && path.find('?') == path.npos);
  std::string decoded;
  if (!decode_path(path, decoded)) return;
  require(decoded.starts_with('/') && decoded.size() <= path.size() && decoded.find('\0') == decoded.npos);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxBody = 1000, kMaxHead = 4096;
  const std::string_view text = fuzz_text(data, size);
  check_target(text);
  sockets::http::request_parser<sockets::http::string_body> parser;
  parser.header_limit(kMaxHead);
  parser.body_limit(kMaxBody);
  parser.eager(true);
  sockets::ErrorCode error;
  for (size_t at = 0; at < size && !error && !parser.is_done();) {
    const size_t taken = parser.put(boost::asio::buffer(text.data() + at, size - at), error);
    if (taken == 0) break;
    at += taken;
  }
  require(sockets::param_of(error).size() < 100 && parser.get().body().size() <= kMaxBody);
  if (!parser.is_header_done()) return 0;
  const HttpRequest request = sockets::request_of_head(parser.get());
  require(is_request_id(request.id) && request.headers.size() <= kMaxHead);
  for (const auto& [name, value] : request.headers)
    require(name == ascii_lower(name) && name.size() + value.size() < size);
  check_target(request.path);
  const sockets::HeadProblem problem = sockets::problem_of(parser.get());
  require((problem.param == nullptr) == (problem.message == nullptr));
  if (problem.message) return 0;
  // An accepted head has at most one Host and at most one header that determines the end of the body. Otherwise a proxy
  // in front might read it in another way.
  const auto count = [&](std::string_view name) {
    return std::count_if(request.headers.begin(), request.headers.end(),
                         [&](const auto& header) { return header.first == name; });
  };
  require(count("host") <= 1 && count("content-length") <= 1 && count("transfer-encoding") <= 1);
  require(count("content-length") + count("transfer-encoding") <= 1);
  return 0;
}
