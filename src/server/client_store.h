// An in-memory store of objects that the API keeps for its clients, found by id.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/json.h"

namespace redline::server {

/// A store of values with `id`, `client` (the name of the API key that made them) and bytes(). Beyond either limit the
/// values that have not changed for the longest time are evicted. A value larger than max_bytes() is not stored.
/// Thread-safe.
template <class T>
class ClientStore {
 public:
  explicit ClientStore(size_t max_kept = 1000, size_t max_bytes = size_t{64} << 20)
      : max_kept_(max_kept), max_bytes_(max_bytes) {}

  size_t max_bytes() const { return max_bytes_; }
  /// Stores a value. Returns false if it is too large; nothing has changed then.
  bool keep(T value) {
    const size_t bytes = value.bytes();
    if (bytes > max_bytes_) return false;
    const std::lock_guard lock(mutex_);
    keep_locked(std::move(value), bytes);
    return true;
  }
  /// Returns nullptr if the id is unknown, belongs to another client, or was evicted.
  std::shared_ptr<const T> find(const std::string& id, const std::string& client) const {
    const std::lock_guard lock(mutex_);
    const auto place = place_of(id, client);
    return place != kept_.end() ? place->value : nullptr;
  }
  /// Returns all values of a client, the latest changed first.
  std::vector<std::shared_ptr<const T>> all(const std::string& client) const {
    std::vector<std::shared_ptr<const T>> values;
    const std::lock_guard lock(mutex_);
    for (auto entry = kept_.rbegin(); entry != kept_.rend(); ++entry)
      if (entry->value->client == client) values.push_back(entry->value);
    return values;
  }
  enum class Updated : uint8_t { kYes, kNotFound, kTooLarge };
  struct Update {
    Updated result;
    std::shared_ptr<const T> value;  ///< set for kYes
  };
  /// Applies change(T&) and returns the new value. kNotFound: see find(). kTooLarge: the value stays unchanged.
  template <class Change>
  Update update(const std::string& id, const std::string& client, const Change& change) {
    const std::lock_guard lock(mutex_);
    const auto place = place_of(id, client);
    if (place == kept_.end()) return {Updated::kNotFound, nullptr};
    T changed = *place->value;
    change(changed);
    const size_t bytes = changed.bytes();
    if (bytes > max_bytes_) return {Updated::kTooLarge, nullptr};
    erase_locked(place);
    return {Updated::kYes, keep_locked(std::move(changed), bytes)};
  }
  /// Erases a value. Returns false where find() returns nullptr.
  bool erase(const std::string& id, const std::string& client) {
    const std::lock_guard lock(mutex_);
    const auto place = place_of(id, client);
    if (place == kept_.end()) return false;
    erase_locked(place);
    return true;
  }

 private:
  struct Entry {
    std::shared_ptr<const T> value;
    size_t bytes;
  };
  using Place = typename std::deque<Entry>::const_iterator;
  Place place_of(const std::string& id, const std::string& client) const {
    return std::find_if(kept_.begin(), kept_.end(),
                        [&](const Entry& entry) { return entry.value->id == id && entry.value->client == client; });
  }
  std::shared_ptr<const T> keep_locked(T value, size_t bytes) {
    auto kept = std::make_shared<const T>(std::move(value));
    kept_.push_back({kept, bytes});
    bytes_ += bytes;
    while (kept_.size() > max_kept_ || bytes_ > max_bytes_) erase_locked(kept_.begin());
    return kept;
  }
  void erase_locked(const Place& place) {
    bytes_ -= place->bytes;
    kept_.erase(place);
  }

  const size_t max_kept_, max_bytes_;
  mutable std::mutex mutex_;  ///< guards the members below
  std::deque<Entry> kept_;    ///< the latest changed at the end
  size_t bytes_ = 0;
};

}  // namespace redline::server
