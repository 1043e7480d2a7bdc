// Conversations of OpenAI's API, which requests of /v1/responses continue, in memory.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "server/json.h"

namespace redline::server {

struct Conversation {
  std::string id, client;  ///< the name of the API key that made it
  int64_t created = 0;     ///< seconds since 1970
  Json metadata = Json::object();
  Json items = Json::array();  ///< as the API lists them, the oldest first
};

/// Thread-safe. Beyond either limit those that have not changed for the longest time are evicted.
class Conversations {
 public:
  explicit Conversations(size_t max_kept = 1000, size_t max_bytes = size_t{64} << 20)
      : max_kept_(max_kept), max_bytes_(max_bytes) {}

  void keep(Conversation conversation);
  /// nullptr: unknown id, another client's, or evicted.
  std::shared_ptr<const Conversation> find(const std::string& id, const std::string& client) const;
  /// The conversation after `change`; nullptr as for find().
  std::shared_ptr<const Conversation> update(const std::string& id, const std::string& client,
                                             const std::function<void(Conversation&)>& change);
  /// False: as nullptr of find().
  bool erase(const std::string& id, const std::string& client);

 private:
  struct Entry {
    std::shared_ptr<const Conversation> conversation;
    size_t bytes;
  };
  std::deque<Entry>::const_iterator place_of(const std::string& id, const std::string& client) const;
  std::shared_ptr<const Conversation> keep_locked(Conversation conversation);
  void erase_locked(const std::deque<Entry>::const_iterator& place);

  const size_t max_kept_, max_bytes_;
  mutable std::mutex mutex_;  ///< guards the members below
  std::deque<Entry> kept_;    ///< the one that changed last at the end
  size_t bytes_ = 0;
};

}  // namespace redline::server
