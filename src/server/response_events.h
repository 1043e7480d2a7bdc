// The events of a streamed response, which clients may read, leave and resume.
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

/// The text of server-sent events, which are numbered from 0 on. Thread-safe.
class ResponseEvents {
 public:
  /// Appends the next event: its type, its number, and the members of `json`.
  void append(std::string_view type, const Json& json);
  /// Ends the stream; further calls of append() have no effect.
  void close();
  /// Ends the stream and deletes its events, because there is no room for them.
  void drop();

  size_t bytes() const;
  /// Returns true after drop().
  bool is_dropped() const;
  enum class Rest : uint8_t { kSome, kComes, kNone, kDropped };
  /// Appends events from number `next` on to `out`, at least one and as many as fit into `max_bytes`, and sets `next`
  /// to the following number. Returns what remains: more events, more that may come, none, or dropped events.
  Rest read(size_t& next, size_t max_bytes, std::string& out) const;

  /// Sets a listener: `changed` is called from any thread when there is more to read. It may be called once more after
  /// unlisten() with the returned number.
  uint64_t listen(std::function<void()> changed);
  void unlisten(uint64_t number);

 private:
  using Listener = std::shared_ptr<const std::function<void()>>;
  void end(bool drops);
  std::vector<Listener> listeners_locked() const;

  mutable std::mutex mutex_;  ///< guards the members below; listeners are called without it
  std::string text_;
  std::vector<size_t> ends_;  ///< end of each event in text_
  bool is_over_ = false, is_dropped_ = false;
  std::map<uint64_t, Listener> listeners_;
  uint64_t next_listener_ = 0;
};

/// Returns "event: NAME
/// ndata: {...}
/// n
/// n", with type and number before the members of `json`.
std::string numbered_event(std::string_view type, size_t number, const Json& json);

}  // namespace redline::server
