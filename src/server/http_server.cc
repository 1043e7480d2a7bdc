#include "server/http_server.h"

#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/context.hpp>
#include <csignal>
#include <optional>
#include <thread>

#include "base/error.h"
#include "server/http_connection.h"

namespace redline::server {
namespace {

using namespace sockets;

class AsioServer final : public HttpServer {
 public:
  AsioServer(const HttpServerOptions& options, HttpApplication& application)
      : shared_(std::make_unique<Shared>(options, application)), acceptor_(shared_->io), signals_(shared_->io) {
    shared_->on_idle = [this] {
      if (shared_->is_draining && shared_->answering == 0) leave();
    };
  }
  ~AsioServer() override {
    stop();
    wait();
    const std::lock_guard lock(shared_->gate->mutex);
    shared_->gate->io = nullptr;
  }

  Status open() {
    const HttpServerOptions& o = shared_->options;
    ErrorCode error;
    Tcp::resolver resolver(shared_->io);
    const auto found = resolver.resolve(o.host, std::to_string(o.port), Tcp::resolver::passive, error);
    if (error || found.empty()) return invalid_argument("--host {}: {}", o.host, error.message());
    const Tcp::endpoint endpoint = *found.begin();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return io("cannot listen on {} port {}: {}", o.host, o.port, error.message());
    port_ = acceptor_.local_endpoint().port();
    if (!o.tls_certificate.empty()) REDLINE_TRY(load_tls(o));
    if (o.handles_signals) watch_signals();
    asio::co_spawn(shared_->io, accept(), asio::detached);
    thread_ = std::thread([this] {
      name_thread("http");
      shared_->io.run();
    });
    return {};
  }

  int port() const override { return port_; }
  int64_t connections() const override { return shared_->connections; }
  void wait() override {
    if (thread_.joinable()) thread_.join();
    shared_->handlers.join();
  }
  void drain() override {
    asio::post(shared_->io, [this] { begin_to_drain(); });
  }
  void stop() override { shared_->io.stop(); }

 private:
  Status load_tls(const HttpServerOptions& o) {
    tls_.emplace(asio::ssl::context::tls_server);
    tls_->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                      asio::ssl::context::no_tlsv1_1);
    ErrorCode error;
    tls_->use_certificate_chain_file(o.tls_certificate, error);
    if (error) return invalid_argument("--tls-cert {}: {}", o.tls_certificate, error.message());
    tls_->use_private_key_file(o.tls_key, asio::ssl::context::pem, error);
    if (error) return invalid_argument("--tls-key {}: {}", o.tls_key, error.message());
    return {};
  }

  void watch_signals() {
    ErrorCode ignored;
    signals_.add(SIGINT, ignored);
    signals_.add(SIGTERM, ignored);
    await_signal();
  }
  void await_signal() {
    signals_.async_wait([this](ErrorCode error, int) {
      if (error) return;
      if (shared_->is_draining) return leave();
      begin_to_drain();
      await_signal();
    });
  }
  void begin_to_drain() {
    if (!shared_->is_draining) {
      shared_->is_draining = true;
      shared_->application.draining();
    }
    if (shared_->answering == 0) leave();
  }
  void leave() {
    ErrorCode ignored;
    signals_.clear(ignored);  // from here on a signal ends the process
    shared_->io.stop();
  }

  asio::awaitable<void> accept() {
    while (true) {
      ErrorCode error;
      Tcp::socket socket(shared_->io);
      co_await acceptor_.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
      if (error) {  // no more descriptors: those in use come back
        asio::steady_timer pause(shared_->io, std::chrono::milliseconds(50));
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      socket.set_option(Tcp::no_delay(true), error);
      socket.set_option(asio::socket_base::keep_alive(true), error);
      // What a slow reader has not taken waits in its queue, where it is bounded, rather than in megabytes of the
      // kernel.
      socket.set_option(asio::socket_base::send_buffer_size(256 << 10), error);
      const int idle_s = 30, unacknowledged_ms = 30000;
      setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
      setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
      const bool is_over_limit = shared_->connections >= shared_->options.max_connections;
      if (tls_) start(TlsStream(beast::tcp_stream(std::move(socket)), *tls_), is_over_limit);
      else start(beast::tcp_stream(std::move(socket)), is_over_limit);
    }
  }

  template <class Stream>
  void start(Stream stream, bool is_over_limit) {
    auto connection = std::make_shared<Connection<Stream>>(std::move(stream), *shared_);
    asio::co_spawn(
        shared_->io, [connection, is_over_limit] { return connection->run(is_over_limit); },
        [connection](std::exception_ptr) {});
  }

  std::unique_ptr<Shared> shared_;
  std::optional<asio::ssl::context> tls_;
  Tcp::acceptor acceptor_;
  asio::signal_set signals_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpServerOptions& options, HttpApplication& application) {
  try {
    auto server = std::make_unique<AsioServer>(options, application);
    REDLINE_TRY(server->open());
    return std::unique_ptr<HttpServer>(std::move(server));
  } catch (const std::exception& error) {
    return io("cannot serve: {}", error.what());
  }
}

}  // namespace redline::server
