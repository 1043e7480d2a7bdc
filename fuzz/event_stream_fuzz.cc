// Reads any bytes as the event stream of a completions server. The events must not depend on the size of the pieces
// (the first byte chooses), token counts must not be negative, and a text must not be longer than its event.
#include "fuzz_input.h"
#include "lab/serve/event_stream.h"

using namespace redline;
using namespace redline::lab;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text = fuzz_text(data + 1, size - 1);
  const auto events_of = [&](size_t step) {
    EventReader reader;
    std::vector<std::string> events;
    for (size_t at = 0; at < text.size(); at += step)
      require(reader.push(text.substr(at, step), [&](std::string_view event) { events.emplace_back(event); }).ok());
    return events;
  };
  const std::vector<std::string> whole = events_of(text.size() + 1);
  require(events_of(1 + data[0] % 32) == whole);
  size_t bytes = 0;
  for (const std::string& event : whole) {
    bytes += event.size();
    const CompletionEvent completion = parse_completion_event(event);
    require(completion.text.size() <= event.size());
    if (completion.usage)
      require(completion.usage->tokens >= 0 && completion.usage->prompt_tokens >= 0 &&
              completion.usage->cached_tokens >= 0);
  }
  require(bytes <= size);
  (void)parse_completion_event(text);
  return 0;
}
