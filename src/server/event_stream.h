// Answers that are streams of server-sent events.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "server/http.h"
#include "server/json.h"

namespace redline::server {

/// Returns an event whose data is `json`: a line and an empty line.
inline std::string sse(const Json& json) { return "data: " + to_text(json) + "\n\n"; }
/// Returns such an event with a name.
inline std::string sse(std::string_view event, const Json& json) {
  return fmt::format("event: {}\ndata: {}\n\n", event, to_text(json));
}
/// A comment that keeps a stream open while nothing else is sent.
inline constexpr std::string_view kEventStreamPing = ": ping\n\n";

/// Makes an answer a stream of server-sent events, and sets headers against buffering by proxies.
inline void become_event_stream(Answer& answer) {
  answer.is_stream = true;
  answer.content_type = "text/event-stream; charset=utf-8";
  answer.headers.emplace_back("Cache-Control", "no-cache");
  answer.headers.emplace_back("X-Accel-Buffering", "no");
}

}  // namespace redline::server
