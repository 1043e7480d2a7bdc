// Answers of /v1/responses that later requests continue, in memory.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "server/json.h"

namespace redline::server {

struct StoredResponse {
  std::string id, client;      ///< the name of the API key that made it
  Json response;               ///< as it was answered
  Json messages;               ///< the conversation up to its end, without instructions (ChatPrompt::messages)
  Json input = Json::array();  ///< the items that it was made from, those of earlier responses first
};

/// Thread-safe. Beyond either limit the oldest are evicted.
class StoredResponses {
 public:
  explicit StoredResponses(size_t max_kept = 1000, size_t max_bytes = size_t{64} << 20)
      : max_kept_(max_kept), max_bytes_(max_bytes) {}

  void keep(StoredResponse response);
  /// nullptr: unknown id, another client's, or evicted.
  std::shared_ptr<const StoredResponse> find(const std::string& id, const std::string& client) const;
  /// False: unknown id.
  bool erase(const std::string& id, const std::string& client);

 private:
  struct Entry {
    std::shared_ptr<const StoredResponse> response;
    size_t bytes;
  };
  const size_t max_kept_, max_bytes_;
  mutable std::mutex mutex_;  ///< guards the members below
  std::deque<Entry> kept_;    ///< the oldest first
  size_t bytes_ = 0;
};

}  // namespace redline::server
