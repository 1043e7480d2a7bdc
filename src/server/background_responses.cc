#include "server/background_responses.h"

#include <algorithm>
#include <exception>

#include "server/json.h"

namespace redline::server {
namespace {

std::shared_ptr<const StoredResponse> with_status(const StoredResponse& response, const char* status) {
  auto changed = std::make_shared<StoredResponse>(response);
  changed->response["status"] = status;
  return changed;
}

/// Returns the error of a response from the body of an answer.
Json response_error(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  const auto error = json.is_object() ? json.find("error") : json.end();
  std::string message = "the response failed";
  if (error != json.end() && error->is_object()) message = error->value("message", message);
  return {{"code", "server_error"}, {"message", message}};
}

}  // namespace

void BackgroundResponses::Inbox::push(const std::string& id, bool has_output) {
  const std::lock_guard lock(mutex);
  woken.emplace_back(id, has_output);
  changed.notify_one();
}

void BackgroundResponses::start(StoredResponse response, std::unique_ptr<Answer> answer) {
  const std::string id = response.id;
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  answer->on_ready([inbox = inbox_, id] { inbox->push(id, true); });
  running_[id] = {std::make_shared<const StoredResponse>(std::move(response)), std::move(answer)};
  inbox_->push(id, false);  // reads the output that came before on_ready()
}

std::shared_ptr<const StoredResponse> BackgroundResponses::find(const std::string& id,
                                                                const std::string& client) const {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(id);
  return found != running_.end() && found->second.response->client == client ? found->second.response : nullptr;
}

std::shared_ptr<const StoredResponse> BackgroundResponses::cancel(const std::string& id, const std::string& client) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(id);
  if (found == running_.end() || found->second.response->client != client) return nullptr;
  return fail_locked(found, "cancelled", nullptr);
}

// Stores a response that failed or was cancelled. OpenAI's API has no event for a cancelled response, so
// "response.failed" ends its stream too; the response in the event has the status.
std::shared_ptr<const StoredResponse> BackgroundResponses::fail_locked(Place place, const char* status, Json error) {
  const auto made = std::make_shared<StoredResponse>(*with_status(*place->second.response, status));
  made->response["error"] = std::move(error);
  if (made->events) {
    made->events->append("response.failed", {{"response", made->response}});
    made->events->close();
    if (made->events->is_dropped()) made->events.reset();
  }
  stored_.keep(*made);
  erase_locked(place);
  return made;
}

void BackgroundResponses::erase_locked(Place place) {
  event_bytes_ -= place->second.event_bytes;
  running_.erase(place);
}

void BackgroundResponses::count_events_locked(Running& running) {
  if (!running.response->events) return;
  const size_t before = std::exchange(running.event_bytes, running.response->events->bytes());
  event_bytes_ += running.event_bytes - before;
  while (event_bytes_ > stored_.max_bytes()) {
    Running& largest = std::max_element(running_.begin(), running_.end(), [](const auto& a, const auto& b) {
                         return a.second.event_bytes < b.second.event_bytes;
                       })->second;
    largest.response->events->drop();
    event_bytes_ -= std::exchange(largest.event_bytes, 0);
  }
}

void BackgroundResponses::close() {
  {
    const std::lock_guard lock(inbox_->mutex);
    inbox_->is_closed = true;
    inbox_->changed.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  for (const auto& [id, running] : running_)
    if (running.response->events) running.response->events->close();
  running_.clear();
}

void BackgroundResponses::run() {
  while (true) {
    std::pair<std::string, bool> woken;
    {
      std::unique_lock lock(inbox_->mutex);
      inbox_->changed.wait(lock, [&] { return inbox_->is_closed || !inbox_->woken.empty(); });
      if (inbox_->is_closed) return;
      woken = std::move(inbox_->woken.front());
      inbox_->woken.pop_front();
    }
    read(woken.first, woken.second);
  }
}

void BackgroundResponses::read(const std::string& id, bool has_output) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  Running& running = found->second;
  std::string body;
  Progress progress = Progress::kMore;
  try {
    while (progress == Progress::kMore) progress = running.answer->poll(body);
  } catch (const std::exception&) {  // a bug, or out of memory: it would end the thread, and with it the server
    running.answer->status = 500;
    body.clear();
    progress = Progress::kDone;
  }
  if (progress == Progress::kDone) {
    if (running.answer->status >= 400) fail_locked(found, "failed", response_error(body));
    else erase_locked(found);
    return;
  }
  count_events_locked(running);
  if (has_output && running.response->response["status"] == "queued")
    running.response = with_status(*running.response, "in_progress");
}

}  // namespace redline::server
