// The socket server: listens, reads requests, and sends their answers. Only its source (with http_connection.h)
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
  int port = 8080;                       ///< 0: any free port
  std::string tls_certificate, tls_key;  ///< PEM files; "": no TLS
  int64_t max_body_bytes = int64_t{32} << 20;
  int64_t max_body_memory = int64_t{256} << 20;  ///< limit for all bodies together; at least max_body_bytes
  int64_t max_header_bytes = 16 << 10;
  int64_t max_connections = 4096;
  int64_t max_connections_per_address = 0;  ///< 0: three quarters of max_connections
  double header_timeout_s = 10;             ///< limit from the first byte of a request to the end of its header
  double body_timeout_s = 60;               ///< limit for reading the body
  double idle_timeout_s = 75;               ///< limit between two requests
  /// Maximum time without progress in writing, whether the server waits to write or written bytes wait to be read. A
  /// slower reader loses its connection.
  double write_timeout_s = 30;
  double drain_timeout_s = 0;  ///< limit for the answers in progress when draining begins; 0: none
  int handler_threads = 4;
  bool handles_signals = false;  ///< handles SIGINT and SIGTERM: the first drains, the second stops
};

/// Facts about the end of a request, for the log.
struct Served {
  int64_t bytes = 0;  ///< size of the sent body
  double ms = 0;
  bool is_complete = false;  ///< false: the client disconnected, or read too slowly
};

/// The decision about a request after its header was read.
struct Admission {
  std::unique_ptr<Answer> refusal;  ///< if not null, it is sent instead, and the body is not read
  bool is_quick = false;            ///< handle() is fast, so it does not wait for slow requests
  std::string client = {};          ///< name whose share of the handler threads and of the memory the request uses
};

/// The interface that the server's owner implements. handle() runs on the handler threads, the other functions on the
/// socket thread.
class HttpApplication {
 public:
  virtual ~HttpApplication() = default;
  /// Called before the body is read: the request has only its header. May set the request's client.
  virtual Admission admit(HttpRequest& request) = 0;
  virtual std::unique_ptr<Answer> handle(HttpRequest& request) = 0;
  /// Returns the answer to an unacceptable request: `status` 400, 413, 429, 431 or 503. `param` names the header, or is
  /// "".
  virtual std::unique_ptr<Answer> refuse(int status, const std::string& param, const std::string& message) = 0;
  virtual void finished(const HttpRequest& request, const Answer& answer, const Served& served) = 0;
  /// Called once, when draining begins. The application should then refuse new work.
  virtual void draining() = 0;
};

class HttpServer {
 public:
  /// Binds and listens. `application` must outlive the server. invalid_argument: unknown host, or TLS files that do not
  /// match. io: the port is in use.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpServerOptions& options, HttpApplication& application);
  virtual ~HttpServer() = default;  ///< stops
  virtual int port() const = 0;
  /// Serves until stop(), or until the last answer after drain() was sent.
  virtual void wait() = 0;
  // These two functions are thread-safe.
  virtual void drain() = 0;
  virtual void stop() = 0;
  virtual int64_t connections() const = 0;
  /// Returns the bytes of max_body_memory that are in use.
  virtual int64_t body_bytes() const = 0;
};

}  // namespace redline::server
