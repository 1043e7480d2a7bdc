// Webhooks: events of predictions, posted to a URL of the client's. Signed as https://www.standardwebhooks.com says.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "redline/status.h"
#include "server/json.h"

namespace redline::server {

/// "v1," and the base64 of HMAC-SHA256 over "ID.TIMESTAMP.BODY". A secret that begins with "whsec_" is base64 after
/// that, another one is taken as it is.
std::string webhook_signature(std::string_view secret, std::string_view id, int64_t timestamp, std::string_view body);

/// Sends events on a thread of its own, those of one URL in their order. One that has to be sent again holds up only
/// those. Thread-safe.
class WebhookSender {
 public:
  /// `secret` "": events are not signed.
  explicit WebhookSender(std::string secret);
  /// Waits for the events that were posted, each for at most one more attempt.
  ~WebhookSender();
  /// An answer other than 2xx, or none within 10 seconds, is followed by up to 4 more attempts, 1, 2, 4 and 8 seconds
  /// apart.
  void post(std::string url, std::string body);

 private:
  struct Event {
    std::string url, body, id;
    int attempts = 0;                                ///< so far
    std::chrono::steady_clock::time_point due = {};  ///< of the next one
  };
  void run();
  /// The place of the event that is due first.
  size_t next() const;
  bool deliver(const Event& event) const;

  const std::string secret_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;  ///< in the order in which they were posted
  bool is_closing_ = false;
  std::thread thread_;
};

/// Where a prediction reports.
struct Webhook {
  std::shared_ptr<WebhookSender> sender;
  std::string url;
  std::vector<std::string> events;  ///< "start", "completed"; none: both
  void send(const std::string& event, const Json& prediction) const;
};

/// invalid_argument: not http:// or https://, or without a host.
Status check_webhook_url(const std::string& url);

}  // namespace redline::server
