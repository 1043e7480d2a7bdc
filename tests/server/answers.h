// Requests to an App without sockets, and the whole of their answers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "server/app.h"

namespace redline::server {

inline HttpRequest make_request(std::string method, std::string path, std::string body = "", Headers headers = {}) {
  HttpRequest r;
  r.method = std::move(method);
  r.path = std::move(path);
  r.body = std::move(body);
  r.headers = {{"host", "localhost:8080"}};
  r.headers.insert(r.headers.end(), headers.begin(), headers.end());
  return r;
}

inline std::string header_of(const Answer& answer, const std::string& name) {
  for (const auto& [key, value] : answer.headers)
    if (key == name) return value;
  return "";
}

inline std::string body_of(Answer& answer) {
  struct Signal {
    std::mutex mutex;
    std::condition_variable ready;
    bool is_ready = false;
  };
  const auto signal = std::make_shared<Signal>();  // a call may come after the end
  answer.on_ready([signal] {
    const std::lock_guard lock(signal->mutex);
    signal->is_ready = true;
    signal->ready.notify_one();
  });
  std::string body;
  for (Progress p = answer.poll(body); p != Progress::kDone; p = answer.poll(body)) {
    if (p != Progress::kWaiting) continue;
    std::unique_lock lock(signal->mutex);
    signal->ready.wait_for(lock, std::chrono::duration<double>(answer.tick_s()), [&] { return signal->is_ready; });
    signal->is_ready = false;
  }
  return body;
}

/// The answer that is sent: after those that only wait for something.
inline std::unique_ptr<Answer> whole(std::unique_ptr<Answer> answer) {
  while (auto make = answer->continuation()) {
    body_of(*answer);
    answer = make();
  }
  return answer;
}

inline Json error_of(Answer& answer) { return Json::parse(body_of(answer))["error"]; }

/// The JSON of the events of server-sent text.
inline std::vector<Json> events_of(const std::string& text) {
  std::vector<Json> events;
  for (size_t at = 0; (at = text.find("data: {", at)) != std::string::npos; ++at) {
    const size_t end = text.find("\n\n", at);
    events.push_back(Json::parse(text.substr(at + 6, end - at - 6)));
  }
  return events;
}

}  // namespace redline::server
