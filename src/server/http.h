// A request and the answer to it, without sockets.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/body_budget.h"

namespace redline::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method, path, query;  ///< path: percent-decoded, without the query
  std::string body;
  Headers headers;   ///< names in lower case
  std::string id;    ///< the client's X-Request-Id, or a new one
  std::string peer;  ///< address of the other end
  bool is_tls = false;
  std::string client;        ///< name of the API key; "" without keys
  bool is_admitted = false;  ///< its head has been checked
  /// What the body and what is made from it take of the server's budget; null: there is none.
  std::shared_ptr<BodyBudget::Lease> lease = nullptr;
  /// The client has gone while the answer is made; null: that is not known.
  std::shared_ptr<const std::atomic<bool>> abandoned = nullptr;
  bool is_abandoned() const { return abandoned && abandoned->load(std::memory_order_relaxed); }
  std::string_view header(std::string_view name) const {
    for (const auto& [key, value] : headers)
      if (key == name) return value;
    return {};
  }
};

/// The request that the calling thread handles: work that takes long asks whether its client still waits.
class HandledRequest {
 public:
  explicit HandledRequest(const HttpRequest& request) : before_(current()) { current() = &request; }
  ~HandledRequest() { current() = before_; }
  HandledRequest(const HandledRequest&) = delete;
  HandledRequest& operator=(const HandledRequest&) = delete;
  static bool is_abandoned() { return current() && current()->is_abandoned(); }

 private:
  static const HttpRequest*& current() {
    static thread_local const HttpRequest* request = nullptr;
    return request;
  }
  const HttpRequest* const before_;
};

/// Properties of an answer for the access log and the metrics, besides its status.
struct AnswerFacts {
  std::string model, finish;
  int64_t prompt_tokens = 0, generated_tokens = 0, cached_tokens = 0;
  double first_token_ms = 0;
};

enum class Progress : uint8_t {
  kWaiting,  ///< nothing yet; wake() will be called
  kMore,     ///< something was appended, more follows
  kDone,     ///< this was the last part
};

/// A response in the making. Used by one thread at a time; destroying it cancels the work behind it.
class Answer {
 public:
  virtual ~Answer() = default;
  int status = 200;
  std::string content_type = "application/json";
  Headers headers;
  AnswerFacts facts;
  /// Sent part by part as poll() gives them, the head at once. Otherwise head and body are sent when poll() is done,
  /// and poll() may change the head until then.
  bool is_stream = false;
  /// Of an answer that is not a stream: poll() may take long, and runs on a handler thread.
  bool is_made_apart = false;

  /// `wake` may be called from any thread, when poll() has something new. It must not be called before this.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): overriders keep it
  virtual void on_ready(std::function<void()> wake) {}
  virtual Progress poll(std::string& body) = 0;
  /// After the last poll(), of an answer that is not a stream: makes the answer that is sent instead. Runs on a handler
  /// thread.
  virtual std::function<std::unique_ptr<Answer>()> continuation() { return {}; }
  /// Sent when a stream has been silent for its tick_s; "": nothing.
  virtual std::string_view ping() const { return {}; }
  /// poll() is called at least this often.
  virtual double tick_s() const { return 15; }
};

/// An answer that is complete.
class FixedAnswer final : public Answer {
 public:
  explicit FixedAnswer(std::string body, int code = 200) : body_(std::move(body)) { status = code; }
  Progress poll(std::string& body) override {
    body += body_;
    return Progress::kDone;
  }

 private:
  std::string body_;
};

/// Printable ASCII without spaces, so that it is safe in a header and in a log line.
bool is_request_id(std::string_view id);
std::string new_request_id();

/// "Bad Request" of 400.
std::string_view reason_phrase(int status);

/// Path and query of a request's target, both as they are written. Of an address "http://host/path?query", the form for
/// proxies, those of the address; the path of an address without one is "/".
std::pair<std::string_view, std::string_view> split_target(std::string_view target);

/// Replaces %XX. False: a malformed escape or a zero byte.
bool percent_decode(std::string_view text, std::string& decoded);
/// The same for the path of a target. False too if it does not begin with a slash.
bool decode_path(std::string_view path, std::string& decoded);

}  // namespace redline::server
