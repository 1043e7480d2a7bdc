// Responses of /v1/responses that later requests can continue.
#pragma once

#include <set>
#include <utility>

#include "server/client_store.h"
#include "server/response_events.h"

namespace redline::server {

struct StoredResponse {
  std::string id, client;
  Json response;               ///< the response as answered
  Json messages;               ///< the conversation up to its end, without instructions (ChatPrompt::messages)
  Json input = Json::array();  ///< the input items, those of earlier responses first
  /// Events of a response that was made in the background and streamed; else null. They grow until its end.
  std::shared_ptr<ResponseEvents> events = nullptr;

  size_t bytes() const {
    return to_text(response).size() + to_text(messages).size() + to_text(input).size() + (events ? events->bytes() : 0);
  }
};

/// The stored responses of all clients. Thread-safe.
class StoredResponses : public ClientStore<StoredResponse> {
 public:
  using ClientStore::ClientStore;
  /// Stores a response as ClientStore. If there is no room for its events, it is stored without them.
  bool keep(StoredResponse response) {
    if (response.events && (response.events->is_dropped() || response.bytes() > max_bytes())) response.events.reset();
    return ClientStore::keep(std::move(response));
  }

  /// Registers a response whose id the client knows already, because it is being streamed. The client may erase() it
  /// before it is stored.
  void expect(const std::string& id, const std::string& client) {
    const std::lock_guard lock(expecting_);
    expected_.emplace(id, client);
  }
  /// Cancels expect(): the response will not be stored.
  void stop_expecting(const std::string& id, const std::string& client) {
    const std::lock_guard lock(expecting_);
    expected_.erase({id, client});
  }
  /// Stores an expected response, unless it has been erased.
  bool keep_expected(StoredResponse response) {
    const std::lock_guard lock(expecting_);
    return expected_.erase({response.id, response.client}) > 0 && keep(std::move(response));
  }
  /// Erases a response. Returns false if it is neither stored nor expected, or belongs to another client.
  bool erase(const std::string& id, const std::string& client) {
    const std::lock_guard lock(expecting_);
    const bool was_expected = expected_.erase({id, client}) > 0;
    return ClientStore::erase(id, client) || was_expected;
  }

 private:
  std::mutex expecting_;                                    ///< guards the member below; taken before that of the store
  std::set<std::pair<std::string, std::string>> expected_;  ///< id and client
};

}  // namespace redline::server
