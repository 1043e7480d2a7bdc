// Responses of /v1/responses that run in the background (`background`): a thread reads them to their end.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "server/http.h"
#include "server/stored_responses.h"

namespace redline::server {

/// The background responses in progress. Thread-safe.
class BackgroundResponses {
 public:
  /// Responses that failed or were cancelled are kept in `stored`.
  explicit BackgroundResponses(StoredResponses& stored) : stored_(stored) {}
  ~BackgroundResponses() { close(); }
  BackgroundResponses(const BackgroundResponses&) = delete;
  BackgroundResponses& operator=(const BackgroundResponses&) = delete;

  /// Starts a response. `answer` must not be a stream; at its end it stores its response itself and closes the events.
  /// `response` is returned by find() until then; its status is "queued", and becomes "in_progress" with the first
  /// token. When the events of all responses in progress exceed max_bytes() of the store, they are dropped.
  /// std::system_error: the system cannot start a thread.
  void start(StoredResponse response, std::unique_ptr<Answer> answer);
  /// Returns nullptr if no such response of this client is in progress.
  std::shared_ptr<const StoredResponse> find(const std::string& id, const std::string& client) const;
  /// Stops a response and stores it with status "cancelled". Its last event is "response.failed" with that status.
  /// Returns nullptr as find().
  std::shared_ptr<const StoredResponse> cancel(const std::string& id, const std::string& client);
  /// Cancels all responses and ends the thread; nothing is stored.
  void close();

 private:
  struct Running {
    std::shared_ptr<const StoredResponse> response;
    std::unique_ptr<Answer> answer;
    size_t event_bytes = 0;  ///< size at the last read()
  };
  /// State shared with the answers, which may call from the engine's thread until they are destroyed.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<std::string, bool>> woken;  ///< ids; true if the engine has new output
    bool is_closed = false;
    void push(const std::string& id, bool has_output);
  };
  void run();
  /// Reads the available output of a response.
  void read(const std::string& id, bool has_output);
  using Place = std::map<std::string, Running>::iterator;
  /// Stores the response with this status and ends its events. Returns the stored response.
  std::shared_ptr<const StoredResponse> fail_locked(Place place, const char* status, Json error);
  void erase_locked(Place place);
  void count_events_locked(Running& running);

  StoredResponses& stored_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  mutable std::mutex mutex_;  ///< guards the members below; must not be locked while the inbox's is held
  std::map<std::string, Running> running_;
  size_t event_bytes_ = 0;  ///< total over all responses
  std::thread thread_;      ///< runs from the first response on
};

}  // namespace redline::server
