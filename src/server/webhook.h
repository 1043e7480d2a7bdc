// Webhooks: events of predictions, posted to a URL of the client, signed as in https://www.standardwebhooks.com.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "redline/status.h"
#include "server/json.h"

namespace redline::server {

/// Returns "v1," and the base64 of HMAC-SHA256 over "ID.TIMESTAMP.BODY". A secret that begins with "whsec_" is base64
/// after that; any other is used as it is.
std::string webhook_signature(std::string_view secret, std::string_view id, int64_t timestamp, std::string_view body);

/// Sends events on a thread of its own. Events of one URL are sent in order; a slow receiver delays only those.
/// Thread-safe.
class WebhookSender {
 public:
  /// Maximum number of waiting events, and bytes of their bodies; further ones are dropped and counted.
  static constexpr size_t kMaxEvents = 10000, kMaxBytes = size_t{64} << 20;
  /// One host may use 1 / kShare of both limits.
  static constexpr size_t kShare = 4;
  /// `secret` "": events are not signed.
  explicit WebhookSender(std::string secret);
  /// Calls close() with a second.
  ~WebhookSender();
  /// Queues an event. An answer other than 2xx, or none within 10 seconds, is followed by up to 4 more attempts, 1, 2,
  /// 4 and 8 seconds apart.
  void post(std::string url, std::string body);
  /// Waits for the queued events, each for at most one more attempt, and in total for at most `seconds`.
  void close(double seconds);
  /// Returns the number of events that were never delivered.
  int64_t num_lost() const { return num_lost_.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Event {
    std::string body, id;
    int attempts = 0;            ///< attempts so far
    Clock::time_point due = {};  ///< time of the next attempt
  };
  /// The events of one URL, oldest first.
  struct Queue {
    std::deque<Event> events;
    std::string host;
    bool is_sending = false;  ///< the first event is being sent
  };
  struct Total {
    size_t events = 0, bytes = 0;
  };
  class Transfers;
  void run();
  /// Sends the events that are due and have a free slot. Returns the time at which the next one is due.
  Clock::time_point begin_due(Transfers& transfers);
  void finish(const std::string& url, bool is_delivered);

  const std::string secret_;
  std::atomic<int64_t> num_lost_{0};
  std::mutex mutex_;  ///< guards the members below
  std::map<std::string, Queue> queues_;
  Total total_;
  std::map<std::string, Total> of_host_;  ///< hosts that have events
  bool is_closing_ = false, is_over_ = false;
  Clock::time_point end_ = Clock::time_point::max();
  const std::unique_ptr<Transfers> transfers_;  ///< used by the thread, except for wake()
  std::thread thread_;
};

/// The webhook of a prediction.
struct Webhook {
  std::shared_ptr<WebhookSender> sender;
  std::string url;
  std::vector<std::string> events;  ///< "start", "completed"; empty: both
  void send(const std::string& event, const Json& prediction) const;
};

/// Checks a URL. invalid_argument: not http:// or https://, or without a host.
Status check_webhook_url(const std::string& url);

}  // namespace redline::server
