#include "server/http_server.h"

#include <sys/socket.h>

#include <algorithm>
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
      : shared_(std::make_unique<Shared>(options, application)), acceptor_(shared_->io), signals_(shared_->io),
        sweep_(shared_->io), drain_end_(shared_->io) {
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
    await_sweep();
    thread_ = std::thread([this] {
      name_thread("http");
      shared_->io.run();
    });
    return {};
  }

  int port() const override { return port_; }
  int64_t connections() const override { return shared_->connections; }
  int64_t body_bytes() const override { return shared_->budget->used(); }
  void wait() override {
    if (thread_.joinable()) thread_.join();
    shared_->handlers.close();
    shared_->quick_handlers.close();
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
      if (shared_->options.drain_timeout_s > 0) {
        drain_end_.expires_after(seconds_of(shared_->options.drain_timeout_s));
        drain_end_.async_wait([this](ErrorCode error) {
          if (!error) leave();
        });
      }
    }
    if (shared_->answering == 0) leave();
  }
  void leave() {
    ErrorCode ignored;
    signals_.clear(ignored);  // the next signal ends the process
    shared_->io.stop();
  }

  /// Closes connections whose clients do not read what was sent.
  void await_sweep() {
    sweep_.expires_after(seconds_of(std::clamp(shared_->options.write_timeout_s / 8, 0.05, 1.0)));
    sweep_.async_wait([this](ErrorCode error) {
      if (error) return;
      const Clock::time_point now = Clock::now();
      for (AnyConnection* const connection : shared_->open) connection->end_if_unread(now);
      await_sweep();
    });
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
      // Up to twice the limit of connections are accepted; those beyond the limit get an answer that says so.
      if (shared_->connections >= 2 * shared_->options.max_connections) continue;
      socket.set_option(Tcp::no_delay(true), error);
      socket.set_option(asio::socket_base::keep_alive(true), error);
      // Output that a slow reader has not taken stays in its queue, where its size is limited, instead of filling
      // megabytes in the kernel.
      socket.set_option(asio::socket_base::send_buffer_size(256 << 10), error);
      const int idle_s = 30;
      const int unacknowledged_ms = static_cast<int>(seconds_of(shared_->options.write_timeout_s).count());
      setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
      setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
      if (tls_) start(TlsStream(beast::tcp_stream(std::move(socket)), *tls_));
      else start(beast::tcp_stream(std::move(socket)));
    }
  }

  template <class Stream>
  void start(Stream stream) {
    auto connection = std::make_shared<Connection<Stream>>(std::move(stream), *shared_);
    asio::co_spawn(
        shared_->io, [connection] { return connection->run(); }, [connection](std::exception_ptr) {});
  }

  std::unique_ptr<Shared> shared_;
  std::optional<asio::ssl::context> tls_;
  Tcp::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer sweep_, drain_end_;
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
