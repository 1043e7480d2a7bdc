#include "lab/serve/event_stream.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "text/json_reader.h"

namespace redline::lab {

Status EventReader::push(std::string_view bytes, const std::function<void(std::string_view data)>& on_data) {
  while (!bytes.empty()) {
    if (std::exchange(ended_with_cr_, false) && bytes[0] == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + data_.size() + part.size() > kMaxEventBytes)
      return invalid_argument("an event of the stream has more than {} bytes", kMaxEventBytes);
    line_ += part;
    if (end == std::string_view::npos) break;
    ended_with_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    take_line(on_data);
    line_.clear();
  }
  return {};
}

void EventReader::take_line(const std::function<void(std::string_view data)>& on_data) {
  std::string_view line = line_;
  if (line.empty()) {
    if (has_data_) on_data(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  constexpr std::string_view kData = "data:";
  if (!line.starts_with(kData)) return;
  line.remove_prefix(kData.size());
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
}

CompletionEvent parse_completion_event(std::string_view data) {
  CompletionEvent event;
  const auto json = parse_json_or_discard<nlohmann::json>(data);
  const auto count = [](const nlohmann::json& object, const char* key) {
    return std::max<int64_t>(0, optional_int(object, key).value_or(0));
  };
  if (const nlohmann::json* usage = member(json, "usage"); usage && usage->is_object()) {
    event.usage.emplace();
    event.usage->prompt_tokens = count(*usage, "prompt_tokens");
    event.usage->tokens = count(*usage, "completion_tokens");
    if (const nlohmann::json* details = member(*usage, "prompt_tokens_details"))
      event.usage->cached_tokens = count(*details, "cached_tokens");
  }
  if (const nlohmann::json* choices = member(json, "choices"); choices && choices->is_array() && !choices->empty())
    event.text = string_or((*choices)[0], "text", "");
  return event;
}

}  // namespace redline::lab
