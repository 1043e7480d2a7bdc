// Answers of /v1/responses that later requests continue.
#pragma once

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

using StoredResponses = ClientStore<StoredResponse>;

}  // namespace redline::server
