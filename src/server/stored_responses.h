// Answers of /v1/responses that later requests go on from, in memory.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "server/json.h"

namespace redline::server {

struct StoredResponse {
  std::string id, client;  ///< the name of the API key that made it
  Json response;           ///< as it was answered
  Json messages;           ///< the conversation up to its end, without instructions (ChatPrompt::messages)
};

/// Thread-safe. Beyond either limit the oldest ones go.
class StoredResponses {
 public:
  static constexpr size_t kMaxKept = 1000, kMaxKeptBytes = size_t{64} << 20;

  void keep(StoredResponse response);
  /// nullptr: there is none of this client, or not any more.
  std::shared_ptr<const StoredResponse> find(const std::string& id, const std::string& client) const;
  /// False: there was none.
  bool erase(const std::string& id, const std::string& client);

 private:
  struct Entry {
    std::shared_ptr<const StoredResponse> response;
    size_t bytes;
  };
  mutable std::mutex mutex_;
  std::deque<Entry> kept_;  ///< the oldest first
  size_t bytes_ = 0;
};

}  // namespace redline::server
