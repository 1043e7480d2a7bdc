// The events of a streamed response, which clients may follow, leave and come back to.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/json.h"

namespace redline::server {

/// Server-sent text, whose events are numbered from 0 on. Thread-safe.
class ResponseEvents {
 public:
  /// As the next event: its type, its number, and what `json` has.
  void append(std::string_view type, const Json& json);
  /// No more events follow; nothing has an effect any more.
  void close();
  /// The same, and those there are get lost: there is no room for them.
  void drop();

  size_t bytes() const;
  /// drop() was called.
  bool is_dropped() const;
  enum class Rest : uint8_t { kSome, kComes, kNone, kDropped };
  /// Appends events from number `next` on, the first and as many as follow it within `max_bytes`, and moves `next`
  /// behind them. The rest: more are there, more may come, that was the last, or they are dropped.
  Rest read(size_t& next, size_t max_bytes, std::string& out) const;

  /// `changed` is called from any thread when there is more to read, also once after unlisten() with the number that is
  /// returned.
  uint64_t listen(std::function<void()> changed);
  void unlisten(uint64_t number);

 private:
  using Listener = std::shared_ptr<const std::function<void()>>;
  void end(bool drops);
  std::vector<Listener> listeners_locked() const;

  mutable std::mutex mutex_;  ///< guards the members below; listeners are called without it
  std::string text_;
  std::vector<size_t> ends_;  ///< of each event in text_
  bool is_over_ = false, is_dropped_ = false;
  std::map<uint64_t, Listener> listeners_;
  uint64_t next_listener_ = 0;
};

/// "event: NAME\ndata: {...}\n\n", with type and number before what `json` has.
std::string numbered_event(std::string_view type, size_t number, const Json& json);

}  // namespace redline::server
