// One connection of the HTTP server: reads requests and sends the parts of their answers. Only http_server.cc includes
// it. It is over 600 lines because its coroutines share the state of the connection, and a second class would only pass
// it around.
#pragma once

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <utility>  // boost/asio/awaitable.hpp of Boost 1.74 does not include it

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <ctime>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/ascii.h"
#include "base/elapsed.h"
#include "base/fair_pool.h"
#include "server/body_parts.h"
#include "server/http_head.h"
#include "server/http_server.h"

namespace redline::server::sockets {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;
using Clock = std::chrono::steady_clock;

inline std::chrono::milliseconds seconds_of(double s) {
  return std::chrono::milliseconds(static_cast<int64_t>(s * 1e3));
}

/// The access of other threads to the socket thread, which may have ended when they call.
struct Gate {
  std::mutex mutex;
  asio::io_context* io = nullptr;
};

/// A connection of any stream type. Runs on the socket thread.
class AnyConnection {
 public:
  virtual ~AnyConnection() = default;
  /// Closes the connection if the other end has read no written bytes for write_timeout_s.
  virtual void end_if_unread(Clock::time_point now) = 0;
};

/// State that all connections share. It outlives them: they are destroyed with `io`, the last member.
struct Shared {
  Shared(const HttpServerOptions& o, HttpApplication& app) : options(o), application(app) {
    gate->io = &io;
    if (options.max_connections_per_address == 0)
      options.max_connections_per_address = std::max<int64_t>(1, options.max_connections * 3 / 4);
    options.max_body_memory = std::max(options.max_body_memory, options.max_body_bytes);
    budget = std::make_shared<BodyBudget>(options.max_body_memory);
  }
  HttpServerOptions options;
  HttpApplication& application;
  std::atomic<int64_t> connections{0};
  int64_t answering = 0;  // number of responses in progress; used by the socket thread only, like is_draining
  bool is_draining = false;
  std::function<void()> on_idle;  // called when no response is in progress
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  std::set<AnyConnection*> open;
  std::map<std::string, int64_t> of_address;  // number of open connections by address
  std::shared_ptr<BodyBudget> budget;
  /// Threads for requests; quick requests have their own, so that they do not wait for long ones.
  FairPool handlers{{.threads = static_cast<size_t>(options.handler_threads), .name = "http-handler"}};
  FairPool quick_handlers{{.threads = 1, .name = "http-quick"}};
  asio::io_context io{1};
};

/// Limits of reading what a client still sends after the last answer: total time, time without data, bytes.
constexpr double kLingerSeconds = 10, kLingerSilenceSeconds = 1;
constexpr int64_t kLingerBytes = int64_t{256} << 20;

/// Size of the read buffer after the header. Upper limit for anything that must be contiguous, such as a chunk-size
/// line.
constexpr int64_t kBufferBytes = 32 << 10;
/// A body of this size is sent in one write with the head.
constexpr size_t kPartBytes = 64 << 10;
/// The body of a request that is refused by its header is read and dropped up to this size, and the connection stays
/// open. Larger bodies end it.
constexpr uint64_t kDroppedBytes = 64 << 10;

/// Status in the log of an answer whose client has disconnected.
constexpr int kClientGone = 499;

/// Runs a function at the end of a scope.
template <class F>
struct AtEnd {
  F run;
  ~AtEnd() { run(); }
};
template <class F>
AtEnd(F) -> AtEnd<F>;

inline const std::string kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

/// Sets the thread's name for top, perf and /proc.
inline bool name_thread(const char* name) { return pthread_setname_np(pthread_self(), name) == 0; }

inline std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

template <class Stream>
class Connection : public AnyConnection, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(Stream stream, Shared& shared)
      : stream_(std::move(stream)), shared_(&shared), event_(shared.io),
        buffer_(static_cast<size_t>(shared.options.max_header_bytes + kBufferBytes)) {
    ErrorCode ignored;
    const auto peer = socket().remote_endpoint(ignored);
    if (!ignored) peer_ = peer.address().to_string();
    is_over_limit_ = shared_->connections >= shared_->options.max_connections;
    ++shared_->connections;
    is_over_address_limit_ = ++shared_->of_address[peer_] > shared_->options.max_connections_per_address;
    shared_->open.insert(this);
  }
  ~Connection() override {
    shared_->open.erase(this);
    if (const auto count = shared_->of_address.find(peer_); --count->second == 0) shared_->of_address.erase(count);
    --shared_->connections;
  }

  asio::awaitable<void> run() {
    ErrorCode error;
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      deadline(shared_->options.header_timeout_s);
      co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                       asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return;
    }
    if (is_over_limit_) {
      is_last_ = true;
      co_await send(shared_->application.refuse(503, "", "too many connections"), {});
    } else if (is_over_address_limit_) {
      is_last_ = true;
      const std::string message =
          fmt::format("this address has {} connections; the limit is --max-connections-per-address",
                      shared_->options.max_connections_per_address);
      co_await send(shared_->application.refuse(429, "", message), {});
    }
    while (!is_last_) {
      co_await serve_one();
    }
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      deadline(1);
      co_await stream_.async_shutdown(asio::redirect_error(asio::use_awaitable, error));
    }
    co_await linger(is_over_limit_ || is_over_address_limit_ ? 1 : kLingerSeconds);
  }

  void end_if_unread(Clock::time_point now) override {
    int waiting = 0;
    if (ioctl(socket().native_handle(), SIOCOUTQ, &waiting) != 0) return;
    const int64_t taken = num_written_ - waiting;
    if (waiting == 0 || taken > max_taken_) {
      max_taken_ = std::max(max_taken_, taken);
      taken_at_ = now;
      return;
    }
    if (now - taken_at_ < seconds_of(shared_->options.write_timeout_s)) return;
    // Drops unread output when the socket is closed, instead of keeping it in the kernel.
    ErrorCode ignored;
    socket().set_option(asio::socket_base::linger(true, 0), ignored);
    socket().close(ignored);
    is_gone_ = true;
    is_last_ = true;
    event_.cancel();
  }

 private:
  using Parser = http::request_parser<http::buffer_body>;
  beast::tcp_stream& lowest() { return beast::get_lowest_layer(stream_); }
  Tcp::socket& socket() { return lowest().socket(); }
  void deadline(double s) { lowest().expires_after(seconds_of(s)); }

  /// Reads one request and answers it. Sets is_last_ when the connection should end.
  asio::awaitable<void> serve_one() {
    ErrorCode error;
    if (buffer_.size() == 0) {  // between requests a connection may be silent for longer than inside one
      buffer_.shrink_to_fit();
      deadline(shared_->options.idle_timeout_s);
      const size_t got =
          co_await stream_.async_read_some(buffer_.prepare(4096), asio::redirect_error(asio::use_awaitable, error));
      buffer_.commit(got);
      if (error) {
        is_last_ = true;
        co_return;
      }
    }
    const Clock::time_point begin = Clock::now();
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(shared_->options.max_header_bytes));
    parser.body_limit(static_cast<uint64_t>(shared_->options.max_body_bytes));
    deadline(shared_->options.header_timeout_s);
    co_await http::async_read_header(stream_, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
    if (error) {
      co_await refuse_unread(error, begin);
      co_return;
    }
    HttpRequest request = request_of(parser.get());
    const HeadProblem problem = problem_of(parser.get());
    std::string decoded;
    const bool has_path = decode_path(request.path, decoded);
    if (problem.message || !has_path) {
      is_last_ = true;
      std::unique_ptr<Answer> answer =
          problem.message ? shared_->application.refuse(400, problem.param, problem.message)
                          : shared_->application.refuse(400, "", "the target of the request is not a path");
      co_await answer_with(std::move(answer), std::move(request), begin);
      co_return;
    }
    request.path = std::move(decoded);
    is_last_ = !parser.keep_alive();
    is_head_ = request.method == "HEAD";
    is_http10_ = parser.get().version() < 11;
    Admission admission = shared_->application.admit(request);
    const bool expects_continue = beast::iequals(parser.get()[http::field::expect], "100-continue");
    if (admission.refusal) {
      const auto length = parser.content_length();
      const bool is_short = length && *length <= kDroppedBytes && !expects_continue;
      is_last_ = is_last_ || (!parser.is_done() && !is_short);
      co_await answer_with(std::move(admission.refusal), std::move(request), begin);
      if (!is_last_ && !parser.is_done()) co_await drop_body(parser);
      co_return;
    }
    if (expects_continue && !parser.is_done()) {
      co_await asio::async_write(stream_, asio::buffer(kContinue), asio::redirect_error(asio::use_awaitable, error));
    }
    const auto body = std::make_shared<BodyParts>();
    if (!error && !parser.is_done()) error = co_await read_body(parser, request, *body, admission.client);
    if (error) {
      co_await refuse_unread(error, begin);
      co_return;
    }
    lowest().expires_never();

    auto handled = std::make_shared<HttpRequest>(std::move(request));
    const auto abandoned = std::make_shared<std::atomic<bool>>(false);
    handled->abandoned = abandoned;
    std::function<std::unique_ptr<Answer>()> handle = [self = this->shared_from_this(), handled, body] {
      handled->body = body->take();
      return self->shared_->application.handle(*handled);
    };
    ++shared_->answering;
    handler_share_ = {admission.client, peer_};
    watch_anew();
    std::unique_ptr<Answer> answer = co_await on_handlers(std::move(handle), admission.is_quick);
    if (!answer) {
      abandoned->store(true, std::memory_order_relaxed);
      answer = std::make_unique<FixedAnswer>("", kClientGone);
    }
    co_await answer_with(std::move(answer), std::move(*handled), begin);
    if (--shared_->answering == 0 && shared_->on_idle) shared_->on_idle();
  }

  /// Reads a body part by part, as far as the budget of all bodies allows. asio::error::no_memory: the budget is used
  /// up.
  asio::awaitable<ErrorCode> read_body(Parser& parser, HttpRequest& request, BodyParts& body,
                                       const std::string& client) {
    ErrorCode error;
    request.lease = shared_->budget->open(client, [weak = this->weak_from_this(), gate = shared_->gate] {
      const std::lock_guard lock(gate->mutex);
      if (!gate->io) return;
      asio::post(*gate->io, [weak] {
        ErrorCode ignored;
        if (const auto self = weak.lock(); self && self->is_reading_body_) self->socket().cancel(ignored);
      });
    });
    is_reading_body_ = true;
    const AtEnd done_reading{[this] { is_reading_body_ = false; }};
    deadline(shared_->options.body_timeout_s);
    std::optional<uint64_t> length;
    if (const auto given = parser.content_length()) length = *given;
    while (!parser.is_done()) {
      if (const size_t more = body.next_part_bytes(length); more > 0)
        if (!request.lease->grow(static_cast<int64_t>(more))) co_return over_budget(request, body);
      const std::span<char> room = body.room(length);
      auto& target = parser.get().body();
      target.data = room.data();
      target.size = room.size();
      target.more = true;
      co_await http::async_read(stream_, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
      body.add(room.size() - target.size);
      if (request.lease->is_taken_away()) co_return over_budget(request, body);
      if (error == http::error::need_buffer) error = {};
      if (error) co_return error;
    }
    if (!request.lease->keep()) co_return over_budget(request, body);
    co_return error;
  }
  static ErrorCode over_budget(HttpRequest& request, BodyParts& body) {
    body.clear();
    request.lease.reset();
    return asio::error::no_memory;
  }

  /// Reads the short body of a request that has been answered.
  asio::awaitable<void> drop_body(Parser& parser) {
    ErrorCode error;
    char scrap[4096];
    deadline(shared_->options.body_timeout_s);
    while (!error && !parser.is_done()) {
      parser.get().body().data = scrap;
      parser.get().body().size = sizeof scrap;
      parser.get().body().more = true;
      co_await http::async_read(stream_, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
      if (error == http::error::need_buffer) error = {};
    }
    if (error) is_last_ = true;
  }

  /// Starts watching whether the client is still connected.
  void watch_anew() {
    is_signalled_ = false;
    is_gone_ = is_refused_;
    has_unread_ = false;
    needs_probe_ = is_half_closed_ && !is_probed_;
  }

  /// Runs `make` on another thread; the answer arrives as an event. Null: the client disconnected before.
  asio::awaitable<std::unique_ptr<Answer>> on_handlers(std::function<std::unique_ptr<Answer>()> make, bool is_quick) {
    auto made = std::make_shared<std::optional<std::unique_ptr<Answer>>>();
    FairPool& pool = is_quick ? shared_->quick_handlers : shared_->handlers;
    const uint64_t number =
        pool.push(handler_share_, [self = this->shared_from_this(), made, make = std::move(make)]() mutable {
          std::unique_ptr<Answer> answer = make();
          make = nullptr;
          Connection& connection = *self;
          asio::post(connection.shared_->io, [self = std::move(self), made, answer = std::move(answer)]() mutable {
            *made = std::move(answer);
            self->event_.cancel();
          });
        });
    ErrorCode error;
    while (!*made) {
      watch_client();
      if (is_gone_) {
        is_last_ = true;
        pool.withdraw(number);
        co_return nullptr;
      }
      // Readability says nothing while input is unread. If its answer takes long, a client that has only stopped
      // sending is probed; one of HTTP/1.0 cannot be probed.
      if (has_unread_ || needs_probe_) event_.expires_after(seconds_of(1));
      else event_.expires_at(Clock::time_point::max());
      const bool probes = needs_probe_;
      co_await event_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      if (*made) break;
      if (has_unread_) look_at_client();
      if (!probes) continue;
      needs_probe_ = false;
      if (!is_http10_ && !co_await probe("", false, false)) is_gone_ = true;
    }
    co_return std::move(**made);
  }

  template <class Message>
  HttpRequest request_of(const Message& message) {
    HttpRequest request = request_of_head(message);
    request.peer = peer_;
    request.is_tls = std::is_same_v<Stream, TlsStream>;
    return request;
  }

  /// Answers a request that could not be read, if the client is still connected.
  asio::awaitable<void> refuse_unread(ErrorCode error, Clock::time_point begin) {
    is_last_ = true;
    std::unique_ptr<Answer> answer;
    if (error == beast::error::timeout) {
      // The stream is already closed.
    } else if (error == http::error::header_limit) {
      answer = shared_->application.refuse(
          431, "", fmt::format("the head of the request has more than {} bytes", shared_->options.max_header_bytes));
    } else if (error == http::error::body_limit) {
      answer = shared_->application.refuse(
          413, "", fmt::format("the body has more than {} bytes", shared_->options.max_body_bytes));
    } else if (error == asio::error::no_memory) {
      answer = shared_->application.refuse(
          503, "",
          fmt::format("the requests that are being answered take up the memory for their bodies, {} MiB "
                      "(--max-body-memory); try again",
                      shared_->options.max_body_memory >> 20));
    } else if (error.category() == http::make_error_code(http::error::bad_method).category() &&
               error != http::error::end_of_stream && error != http::error::partial_message) {
      answer = shared_->application.refuse(400, param_of(error), "not an HTTP request: " + error.message());
    }
    if (!answer) co_return;
    HttpRequest request;
    request.id = new_request_id();
    request.peer = peer_;
    co_await answer_with(std::move(answer), std::move(request), begin);
  }

  asio::awaitable<void> answer_with(std::unique_ptr<Answer> answer, HttpRequest request, Clock::time_point begin) {
    Served served;
    served.bytes = co_await send(std::move(answer), request.id);
    served.is_complete = served.bytes >= 0;
    served.bytes = std::max<int64_t>(served.bytes, 0);
    served.ms = ms_since(begin);
    if (sent_) shared_->application.finished(request, *sent_, served);
    sent_.reset();
  }

  /// Sends an answer, which is stored in sent_. Returns the size of the body, or -1 if it was cut.
  asio::awaitable<int64_t> send(std::unique_ptr<Answer> answer, std::string id) {
    const bool was_gone = is_gone_ && answer->status == kClientGone;
    sent_ = std::move(answer);
    if (was_gone) co_return -1;
    Answer& a = *sent_;
    watch_anew();
    a.on_ready([weak = this->weak_from_this(), gate = shared_->gate] {
      const std::lock_guard lock(gate->mutex);
      if (!gate->io) return;
      if (const auto self = weak.lock()) self->signal();
    });
    std::string body, out;
    int64_t size = 0;
    bool has_head = false;
    const bool is_chunked = a.is_stream && !is_http10_;
    if (a.is_stream && is_http10_) is_last_ = true;
    while (true) {
      body.clear();
      Progress progress = Progress::kWaiting;
      while (progress != Progress::kDone) {
        if (a.is_made_apart && !a.is_stream) progress = co_await poll_on_handlers(body);
        else progress = a.poll(body);
        if (is_gone_) break;
        if (progress == Progress::kWaiting && (!a.is_stream || (body.empty() && has_head))) {
          const bool is_silent = co_await wait_for_event(a.tick_s());
          if (std::exchange(needs_probe_, false) && !co_await probe(has_head ? a.ping() : "", has_head, is_chunked))
            is_gone_ = true;
          if (is_gone_) break;
          if (is_silent && a.is_stream) body += a.ping();
          if (!body.empty() && a.is_stream) break;
          continue;
        }
        if (a.is_stream) break;
      }
      if (is_gone_) {
        is_last_ = true;
        co_return -1;
      }
      if (progress == Progress::kDone && !a.is_stream)
        if (auto make = a.continuation()) {
          std::unique_ptr<Answer> next = co_await on_handlers(std::move(make), false);
          if (!next) co_return -1;
          co_return co_await send(std::move(next), std::move(id));
        }
      out.clear();
      if (!has_head) {
        if (shared_->is_draining) is_last_ = true;
        out = head_of(a, id, is_chunked ? -1 : a.is_stream ? -2 : static_cast<int64_t>(body.size()));
        has_head = true;
      }
      const bool is_done = progress == Progress::kDone;
      bool is_taken = true;
      if (!is_head_) {
        size += std::ssize(body);
        if (is_chunked) out += chunk_of(body);
        if (is_chunked && is_done) out += "0\r\n\r\n";
        if (!is_chunked && body.size() <= kPartBytes) out += std::exchange(body, {});
      } else {
        body.clear();
      }
      if (!out.empty()) is_taken = co_await write_all(out);
      if (is_taken && !is_chunked && !body.empty()) is_taken = co_await write_all(body);  // without a copy of it
      if (!is_taken) {
        is_last_ = true;
        co_return -1;
      }
      if (is_done || is_head_) co_return size;
    }
  }

  /// Runs poll() of a slow answer on another thread.
  asio::awaitable<Progress> poll_on_handlers(std::string& body) {
    struct Polled {
      std::unique_ptr<Answer> answer;
      std::string body;
      Progress progress = Progress::kWaiting;
    };
    // The other thread owns the answer: if the client disconnects meanwhile, it is destroyed there.
    const auto polled = std::make_shared<Polled>(Polled{std::move(sent_), std::move(body)});
    const auto poll = [polled] {
      polled->progress = polled->answer->poll(polled->body);
      return std::make_unique<FixedAnswer>("");
    };
    if (!co_await on_handlers(poll, false)) {
      sent_ = std::make_unique<FixedAnswer>("", kClientGone);
      is_gone_ = true;
      co_return Progress::kDone;
    }
    sent_ = std::move(polled->answer);
    body = std::move(polled->body);
    co_return polled->progress;
  }

  /// Writes all bytes. The client has write_timeout_s for each part, not for the whole text. Returns false if the
  /// client is gone or read nothing in that time.
  asio::awaitable<bool> write_all(std::string_view rest) {
    while (!rest.empty()) {
      ErrorCode error;
      deadline(shared_->options.write_timeout_s);
      const size_t sent = co_await stream_.async_write_some(asio::buffer(rest.data(), rest.size()),
                                                            asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return false;
      num_written_ += static_cast<int64_t>(sent);
      rest.remove_prefix(sent);
    }
    lowest().expires_never();
    co_return true;
  }

  static std::string chunk_of(std::string_view body) {
    return body.empty() ? "" : fmt::format("{:x}\r\n{}\r\n", body.size(), body);
  }

  /// Returns the header. `size` -1: chunked; -2: the body ends with the connection.
  std::string head_of(const Answer& a, std::string_view id, int64_t size) const {
    std::string head = fmt::format("HTTP/1.1 {} {}\r\nServer: redline\r\nDate: {}\r\n", a.status,
                                   reason_phrase(a.status), http_date());
    const bool has_body = a.status != 204 && a.status != 304;
    if (has_body) head += fmt::format("Content-Type: {}\r\n", a.content_type);
    if (size >= 0 && has_body) head += fmt::format("Content-Length: {}\r\n", size);
    if (size == -1) head += "Transfer-Encoding: chunked\r\n";
    if (is_last_) head += "Connection: close\r\n";
    else if (is_http10_) head += "Connection: keep-alive\r\n";
    if (!id.empty()) head += fmt::format("X-Request-Id: {}\r\n", id);
    for (const auto& [name, value] : a.headers) head += fmt::format("{}: {}\r\n", name, value);
    return head + "\r\n";
  }

  /// Signals that poll() has something new. Called on any thread, through the gate.
  void signal() {
    if (is_signalled_.exchange(true)) return;
    asio::post(shared_->io, [self = this->shared_from_this()] { self->event_.cancel(); });
  }

  /// Waits for an event. Returns true if none came in `tick_s`. Sets is_gone_ when the client has disconnected,
  /// needs_probe_ when it may have.
  asio::awaitable<bool> wait_for_event(double tick_s) {
    watch_client();
    if (is_signalled_.exchange(false) || needs_probe_ || is_gone_) co_return false;
    const bool asks_often = has_unread_;  // readability says nothing then
    event_.expires_after(seconds_of(asks_often ? std::min(tick_s, 1.0) : tick_s));
    ErrorCode error;
    co_await event_.async_wait(asio::redirect_error(asio::use_awaitable, error));
    if (asks_often) look_at_client();
    is_signalled_ = false;
    co_return error != asio::error::operation_aborted && !asks_often;
  }

  /// Watches the socket while an answer is computed: readable means that the client disconnected or sent its next
  /// request.
  void watch_client() {
    if (is_watching_ || has_unread_ || is_half_closed_) return;
    if (buffer_.size() > 0) {
      has_unread_ = true;
      return;
    }
    is_watching_ = true;
    socket().async_wait(Tcp::socket::wait_read, [self = this->shared_from_this()](ErrorCode error) {
      self->is_watching_ = false;
      if (error == asio::error::operation_aborted) return;
      if (error) self->is_gone_ = true;
      else if (self->look_at_client()) self->has_unread_ = true;
      self->event_.cancel();
    });
  }

  /// Returns true if the client's sending side is open. The TCP state also shows a closed side behind bytes that are
  /// still unread.
  bool look_at_client() {
    tcp_info info{};
    socklen_t size = sizeof info;
    const bool is_known = getsockopt(socket().native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
    if (is_known && info.tcpi_state == TCP_ESTABLISHED) return true;
    if (!is_known || info.tcpi_state != TCP_CLOSE_WAIT) {
      is_gone_ = true;
    } else if (!std::exchange(is_half_closed_, true)) {
      needs_probe_ = true;
      ErrorCode ignored;
      if (buffer_.size() + socket().available(ignored) == 0) is_last_ = true;  // else its next request is there
    }
    return false;
  }

  /// Finds out whether a client that has closed its sending side still waits for its answer. The two cases look the
  /// same until something is sent, which the kernel of a client that is gone refuses. Streams send their pings. Other
  /// answers send an interim response of HTTP/1.1, of which every client knows this one; HTTP/1.0 has none, and its
  /// clients count as gone. A stream without pings has to wait for its next part. Returns false if the client is gone.
  asio::awaitable<bool> probe(std::string_view ping, bool has_head, bool is_chunked) {
    if (!has_head && is_http10_) co_return false;
    const std::string text = !has_head ? kContinue : is_chunked ? chunk_of(ping) : std::string(ping);
    if (!co_await write_all(text)) co_return false;
    is_probed_ = true;
    socket().async_wait(Tcp::socket::wait_error, [weak = this->weak_from_this()](ErrorCode error) {
      const auto self = weak.lock();
      if (error == asio::error::operation_aborted || !self) return;
      self->is_gone_ = self->is_refused_ = true;
      self->event_.cancel();
    });
    look_at_client();  // for earlier events
    co_return !is_gone_;
  }

  /// Reads and drops input before closing, within limits. Closing a socket with unread input resets the connection, and
  /// a client that is still sending a refused body may then lose the answer.
  asio::awaitable<void> linger(double max_s) {
    ErrorCode error;
    socket().shutdown(Tcp::socket::shutdown_send, error);
    std::vector<char> scrap;
    const Clock::time_point end = Clock::now() + seconds_of(max_s);
    for (int64_t dropped = 0; !error && dropped < kLingerBytes;) {
      lowest().expires_at(std::min(end, Clock::now() + seconds_of(kLingerSilenceSeconds)));
      scrap.resize(dropped == 0 ? 4096 : 64 << 10);  // few have more to say
      // Reads below TLS, because the content no longer matters.
      dropped += static_cast<int64_t>(
          co_await lowest().async_read_some(asio::buffer(scrap), asio::redirect_error(asio::use_awaitable, error)));
    }
  }

  Stream stream_;
  Shared* const shared_;
  asio::steady_timer event_;
  beast::flat_buffer buffer_;
  std::string peer_;
  std::unique_ptr<Answer> sent_;
  WorkShare handler_share_;
  /// Bytes; bytes that are no longer in the kernel's buffer have been read by the other end.
  int64_t num_written_ = 0, max_taken_ = 0;
  Clock::time_point taken_at_ = Clock::now();
  std::atomic<bool> is_signalled_{false};
  bool is_last_ = false, is_head_ = false, is_http10_ = false, is_gone_ = false, is_watching_ = false,
       has_unread_ = false, is_half_closed_ = false, needs_probe_ = false, is_reading_body_ = false, is_probed_ = false,
       is_refused_ = false, is_over_limit_ = false, is_over_address_limit_ = false;
};

}  // namespace redline::server::sockets
