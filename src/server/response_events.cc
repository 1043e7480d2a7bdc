#include "server/response_events.h"

#include <utility>

#include "server/event_stream.h"

namespace redline::server {

std::string numbered_event(std::string_view type, size_t number, const Json& json) {
  Json event = {{"type", type}, {"sequence_number", number}};
  event.update(json);
  return sse(type, event);
}

std::vector<ResponseEvents::Listener> ResponseEvents::listeners_locked() const {
  std::vector<Listener> all;
  for (const auto& [number, listener] : listeners_) all.push_back(listener);
  return all;
}

void ResponseEvents::append(std::string_view type, const Json& json) {
  std::vector<Listener> to_call;
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    text_ += numbered_event(type, ends_.size(), json);
    ends_.push_back(text_.size());
    to_call = listeners_locked();
  }
  for (const Listener& listener : to_call) (*listener)();
}

void ResponseEvents::end(bool drops) {
  std::vector<Listener> to_call;
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    is_over_ = true;
    is_dropped_ = drops;
    if (drops) {
      text_.clear();
      ends_.clear();
    }
    text_.shrink_to_fit();
    ends_.shrink_to_fit();
    to_call = listeners_locked();
  }
  for (const Listener& listener : to_call) (*listener)();
}

void ResponseEvents::close() { end(false); }
void ResponseEvents::drop() { end(true); }

size_t ResponseEvents::bytes() const {
  const std::lock_guard lock(mutex_);
  return text_.size() + ends_.size() * sizeof(size_t);
}

bool ResponseEvents::is_dropped() const {
  const std::lock_guard lock(mutex_);
  return is_dropped_;
}

ResponseEvents::Rest ResponseEvents::read(size_t& next, size_t max_bytes, std::string& out) const {
  const std::lock_guard lock(mutex_);
  if (is_dropped_) return Rest::kDropped;
  if (next < ends_.size()) {
    const size_t begin = next == 0 ? 0 : ends_[next - 1];
    do {
      ++next;
    } while (next < ends_.size() && ends_[next] - begin <= max_bytes);
    out.append(text_, begin, ends_[next - 1] - begin);
  }
  if (next < ends_.size()) return Rest::kSome;
  return is_over_ ? Rest::kNone : Rest::kComes;
}

uint64_t ResponseEvents::listen(std::function<void()> changed) {
  const std::lock_guard lock(mutex_);
  listeners_[next_listener_] = std::make_shared<const std::function<void()>>(std::move(changed));
  return next_listener_++;
}

void ResponseEvents::unlisten(uint64_t number) {
  const std::lock_guard lock(mutex_);
  listeners_.erase(number);
}

}  // namespace redline::server
