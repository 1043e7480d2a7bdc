// Answers of /v1/responses for which no client waits (`background`): a thread reads them to their end.
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

/// Thread-safe.
class BackgroundResponses {
 public:
  /// Those that failed or were cancelled are kept in `stored`.
  explicit BackgroundResponses(StoredResponses& stored) : stored_(stored) {}
  ~BackgroundResponses() { close(); }
  BackgroundResponses(const BackgroundResponses&) = delete;
  BackgroundResponses& operator=(const BackgroundResponses&) = delete;

  /// `answer` is not a stream, and keeps its response itself at its end, when it also closes the events. `response`:
  /// what find() gives until then; its status is "queued", and becomes "in_progress" with the first token. Events of all
  /// responses in progress that exceed max_bytes() of the store are dropped. std::system_error: the system has no
  /// thread.
  void start(StoredResponse response, std::unique_ptr<Answer> answer);
  /// nullptr: no such response of this client is in progress.
  std::shared_ptr<const StoredResponse> find(const std::string& id, const std::string& client) const;
  /// Ends its work and keeps it with status "cancelled", which is also its last event. nullptr: as find().
  std::shared_ptr<const StoredResponse> cancel(const std::string& id, const std::string& client);
  /// Cancels all and ends the thread; nothing is kept.
  void close();

 private:
  struct Running {
    std::shared_ptr<const StoredResponse> response;
    std::unique_ptr<Answer> answer;
    size_t event_bytes = 0;  ///< as of the last read()
  };
  /// Shared with the answers, which may call from the thread of the engine until they are destroyed.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<std::string, bool>> woken;  ///< ids; whether the engine has something new
    bool is_closed = false;
    void push(const std::string& id, bool has_output);
  };
  void run();
  /// Reads what there is of a response.
  void read(const std::string& id, bool has_output);
  using Place = std::map<std::string, Running>::iterator;
  /// Keeps it with this status and ends its events. What it is kept as.
  std::shared_ptr<const StoredResponse> fail_locked(Place place, const char* status, Json error);
  void erase_locked(Place place);
  void count_events_locked(Running& running);

  StoredResponses& stored_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  mutable std::mutex mutex_;  ///< guards the members below; the inbox's is never held when it is taken
  std::map<std::string, Running> running_;
  size_t event_bytes_ = 0;  ///< of all
  std::thread thread_;      ///< from the first response on
};

}  // namespace redline::server
