#include "server/conversations.h"

#include <algorithm>

namespace redline::server {

std::deque<Conversations::Entry>::const_iterator Conversations::place_of(const std::string& id,
                                                                         const std::string& client) const {
  return std::find_if(kept_.begin(), kept_.end(), [&](const Entry& entry) {
    return entry.conversation->id == id && entry.conversation->client == client;
  });
}

void Conversations::erase_locked(const std::deque<Entry>::const_iterator& place) {
  bytes_ -= place->bytes;
  kept_.erase(place);
}

std::shared_ptr<const Conversation> Conversations::keep_locked(Conversation conversation) {
  const size_t bytes = to_text(conversation.items).size() + to_text(conversation.metadata).size();
  auto kept = std::make_shared<const Conversation>(std::move(conversation));
  kept_.push_back({kept, bytes});
  bytes_ += bytes;
  while (kept_.size() > max_kept_ || bytes_ > max_bytes_) erase_locked(kept_.begin());
  return kept;
}

void Conversations::keep(Conversation conversation) {
  const std::lock_guard lock(mutex_);
  keep_locked(std::move(conversation));
}

std::shared_ptr<const Conversation> Conversations::find(const std::string& id, const std::string& client) const {
  const std::lock_guard lock(mutex_);
  const auto place = place_of(id, client);
  return place != kept_.end() ? place->conversation : nullptr;
}

std::shared_ptr<const Conversation> Conversations::update(const std::string& id, const std::string& client,
                                                          const std::function<void(Conversation&)>& change) {
  const std::lock_guard lock(mutex_);
  const auto place = place_of(id, client);
  if (place == kept_.end()) return nullptr;
  Conversation changed = *place->conversation;
  change(changed);
  erase_locked(place);
  return keep_locked(std::move(changed));
}

bool Conversations::erase(const std::string& id, const std::string& client) {
  const std::lock_guard lock(mutex_);
  const auto place = place_of(id, client);
  if (place == kept_.end()) return false;
  erase_locked(place);
  return true;
}

}  // namespace redline::server
