// Answers of /v1/responses that later requests continue.
#pragma once

#include <set>
#include <utility>

#include "server/client_store.h"
#include "server/response_events.h"

namespace redline::server {

struct StoredResponse {
  std::string id, client;
  Json response;               ///< as it was answered
  Json messages;               ///< the conversation up to its end, without instructions (ChatPrompt::messages)
  Json input = Json::array();  ///< the items that it was made from, those of earlier responses first
  /// Of a response that was made in the background and streamed; else null. They grow until its end.
  std::shared_ptr<ResponseEvents> events = nullptr;

  size_t bytes() const {
    return to_text(response).size() + to_text(messages).size() + to_text(input).size() + (events ? events->bytes() : 0);
  }
};

/// Thread-safe.
class StoredResponses : public ClientStore<StoredResponse> {
 public:
  using ClientStore::ClientStore;
  /// As of any ClientStore. Where there is no room for its events, it is kept without them.
  bool keep(StoredResponse response) {
    if (response.events && (response.events->is_dropped() || response.bytes() > max_bytes())) response.events.reset();
    return ClientStore::keep(std::move(response));
  }

  /// A client knows the id of a response that is streamed before the response is kept, and may erase() it until then.
  void expect(const std::string& id, const std::string& client) {
    const std::lock_guard lock(expecting_);
    expected_.emplace(id, client);
  }
  /// It will not be kept.
  void stop_expecting(const std::string& id, const std::string& client) {
    const std::lock_guard lock(expecting_);
    expected_.erase({id, client});
  }
  /// keep() of an expected response, unless it has been erased.
  bool keep_expected(StoredResponse response) {
    const std::lock_guard lock(expecting_);
    return expected_.erase({response.id, response.client}) > 0 && keep(std::move(response));
  }
  /// False: neither kept nor expected, or another client's.
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
