// Sockets: listens, reads requests, and sends what their answers give. Only its source (with http_connection.h)
// includes Boost.Asio, Boost.Beast and OpenSSL's streams.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "redline/status.h"
#include "server/http.h"

namespace redline::server {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                       ///< 0: any that is free
  std::string tls_certificate, tls_key;  ///< PEM files; "": no TLS
  int64_t max_body_bytes = int64_t{32} << 20;
  int64_t max_body_memory = int64_t{256} << 20;  ///< of all bodies together; at least max_body_bytes
  int64_t max_header_bytes = 16 << 10;
  int64_t max_connections = 4096;
  int64_t max_connections_per_address = 0;  ///< 0: three quarters of max_connections
  double header_timeout_s = 10;             ///< from the first byte of a request to the end of its head
  double body_timeout_s = 60;               ///< of the body
  double idle_timeout_s = 75;               ///< between requests
  /// Without progress, whether the server waits to write or what it has written waits to be taken; a reader that is
  /// slower loses its connection.
  double write_timeout_s = 30;
  double drain_timeout_s = 0;  ///< of the answers that are in the making when draining begins; 0: none
  int handler_threads = 4;
  bool handles_signals = false;  ///< SIGINT and SIGTERM: the first drains, the second stops
};

/// How a request ended, for the log.
struct Served {
  int64_t bytes = 0;  ///< of the body
  double ms = 0;
  bool is_complete = false;  ///< false: the client left, or was too slow
};

/// The decisions that are made at the head of a request.
struct Admission {
  std::unique_ptr<Answer> refusal;  ///< not null: it is answered instead, and the body is not read
  bool is_quick = false;            ///< handle() takes no time: it does not wait for what takes some
  std::string client = {};          ///< whose share of the handler threads and of the memory it takes
};

/// The interface that the server's owner implements. handle() runs on the handler threads; the others on the thread of
/// the sockets.
class HttpApplication {
 public:
  virtual ~HttpApplication() = default;
  /// Before the body is read: the request has its head only. May set the request's client.
  virtual Admission admit(HttpRequest& request) = 0;
  virtual std::unique_ptr<Answer> handle(HttpRequest& request) = 0;
  /// The answer to an unacceptable request: `status` 400, 413, 429, 431 or 503. `param` names the header, or is "".
  virtual std::unique_ptr<Answer> refuse(int status, const std::string& param, const std::string& message) = 0;
  virtual void finished(const HttpRequest& request, const Answer& answer, const Served& served) = 0;
  /// Called once, when draining begins: from now on the application should refuse new work.
  virtual void draining() = 0;
};

class HttpServer {
 public:
  /// Binds and listens. `application` must outlive the server. invalid_argument: the host, or TLS files that do not
  /// fit. io: the port is in use.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpServerOptions& options, HttpApplication& application);
  virtual ~HttpServer() = default;  ///< stops
  virtual int port() const = 0;
  /// Serves until stop(), or until the last answer after drain() was sent.
  virtual void wait() = 0;
  // Thread-safe.
  virtual void drain() = 0;
  virtual void stop() = 0;
  virtual int64_t connections() const = 0;
  /// Bytes of max_body_memory that are in use.
  virtual int64_t body_bytes() const = 0;
};

}  // namespace redline::server
