#include "server/stored_responses.h"

#include <algorithm>

namespace redline::server {

void StoredResponses::keep(StoredResponse response) {
  size_t bytes = 0;
  for (const Json* part : {&response.response, &response.messages, &response.input}) bytes += to_text(*part).size();
  const std::lock_guard lock(mutex_);
  kept_.push_back({std::make_shared<const StoredResponse>(std::move(response)), bytes});
  bytes_ += bytes;
  while (kept_.size() > max_kept_ || bytes_ > max_bytes_) {
    bytes_ -= kept_.front().bytes;
    kept_.pop_front();
  }
}

std::shared_ptr<const StoredResponse> StoredResponses::find(const std::string& id, const std::string& client) const {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : kept_)
    if (entry.response->id == id && entry.response->client == client) return entry.response;
  return nullptr;
}

bool StoredResponses::erase(const std::string& id, const std::string& client) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Entry& entry) {
    return entry.response->id == id && entry.response->client == client;
  });
  if (found == kept_.end()) return false;
  bytes_ -= found->bytes;
  kept_.erase(found);
  return true;
}

}  // namespace redline::server
