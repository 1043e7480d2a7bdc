// A request and its answer, independent of sockets.
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

/// A request as it was read.
struct HttpRequest {
  std::string method, path, query;  ///< path: percent-decoded, without the query
  std::string body;
  Headers headers;   ///< names in lower case
  std::string id;    ///< the client's X-Request-Id, or a new one
  std::string peer;  ///< address of the other end
  bool is_tls = false;
  std::string client;        ///< name of the API key; "" without keys
  bool is_admitted = false;  ///< App::admit() has accepted it
  /// The bytes of the server's budget that the body and its parsed form take; null: there is no budget.
  std::shared_ptr<BodyBudget::Lease> lease = nullptr;
  /// Set to true when the client disconnects while the answer is computed; null: this is not observed.
  std::shared_ptr<const std::atomic<bool>> abandoned = nullptr;
  bool is_abandoned() const { return abandoned && abandoned->load(std::memory_order_relaxed); }
  std::string_view header(std::string_view name) const {
    for (const auto& [key, value] : headers)
      if (key == name) return value;
    return {};
  }
};

/// The request that the calling thread handles. Long work checks it to see whether the client still waits.
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

/// Facts about an answer for the access log and the metrics, besides its status.
struct AnswerFacts {
  std::string model, finish;
  int64_t prompt_tokens = 0, generated_tokens = 0, cached_tokens = 0;
  double first_token_ms = 0;
};

enum class Progress : uint8_t {
  kWaiting,  ///< nothing was appended; wake() will be called
  kMore,     ///< something was appended, and more follows
  kDone,     ///< this was the last part
};

/// A response that is being computed. Used by one thread at a time; the destructor cancels its work.
class Answer {
 public:
  virtual ~Answer() = default;
  int status = 200;
  std::string content_type = "application/json";
  Headers headers;
  AnswerFacts facts;
  /// If true, the head is sent at once and the parts as poll() appends them. If false, head and body are sent when
  /// poll() is done, and poll() may change the head until then.
  bool is_stream = false;
  /// For answers that are not streams: if true, poll() may take long and runs on a handler thread.
  bool is_made_apart = false;

  /// Sets a function that is called from any thread when poll() has something new. It is not called before on_ready()
  /// is.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): overriders keep it
  virtual void on_ready(std::function<void()> wake) {}
  virtual Progress poll(std::string& body) = 0;
  /// For answers that are not streams, called after the last poll(): returns a function that makes the answer to send
  /// instead, or an empty one. The function runs on a handler thread.
  virtual std::function<std::unique_ptr<Answer>()> continuation() { return {}; }
  /// Returns the text to send when a stream has been silent for tick_s(); "": none.
  virtual std::string_view ping() const { return {}; }
  /// Returns the maximum time between two calls of poll().
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

/// Returns true for printable ASCII without spaces, which is safe in a header and in a log line.
bool is_request_id(std::string_view id);
std::string new_request_id();

/// Returns "Bad Request" for 400.
std::string_view reason_phrase(int status);

/// Returns path and query of a request's target, both as they are written. The target may be an address
/// "http://host/path?query", the form for proxies; the path of an address without one is "/".
std::pair<std::string_view, std::string_view> split_target(std::string_view target);

/// Replaces %XX. Returns false for a malformed escape or a zero byte.
bool percent_decode(std::string_view text, std::string& decoded);
/// percent_decode() for the path of a target. Also returns false if it does not begin with a slash.
bool decode_path(std::string_view path, std::string& decoded);

}  // namespace redline::server
