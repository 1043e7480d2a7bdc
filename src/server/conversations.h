// Conversations of OpenAI's API, which requests of /v1/responses continue.
#pragma once

#include "server/client_store.h"

namespace redline::server {

struct Conversation {
  std::string id, client;
  int64_t created = 0;  ///< seconds since 1970
  Json metadata = Json::object();
  Json items = Json::array();  ///< as the API lists them, oldest first

  size_t bytes() const { return to_text(items).size() + to_text(metadata).size(); }
};

using Conversations = ClientStore<Conversation>;

}  // namespace redline::server
