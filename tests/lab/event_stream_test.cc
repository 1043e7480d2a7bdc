// Server-sent events: cut anywhere, of any server.
#include "lab/serve/event_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace redline::lab {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> events_of(std::string_view text, size_t step) {
  EventReader reader;
  std::vector<std::string> events;
  for (size_t at = 0; at < text.size(); at += step)
    EXPECT_TRUE(reader.push(text.substr(at, step), [&](std::string_view data) { events.emplace_back(data); }).ok());
  return events;
}

TEST(EventStream, EventsDoNotDependOnTheCuts) {
  const std::string text =
      ": ping\n\ndata: one\n\nevent: x\r\ndata:two\r\ndata: three\r\n\r\nid: 5\n\ndata:\n\ndata: not ended\n";
  for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, text.size()})
    EXPECT_THAT(events_of(text, step), ElementsAre("one", "two\nthree", "")) << step;
}

TEST(EventStream, ALineEndsWithCarriageReturnOrLineFeedOrBoth) {
  for (const std::string end : {"\r", "\n", "\r\n"}) {
    std::string text;
    for (const char* line : {"data: one", "", "data:two", "data: three", "", "data: not ended", "data: x"})
      text.append(line).append(end);
    for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, text.size()})
      EXPECT_THAT(events_of(text, step), ElementsAre("one", "two\nthree")) << step;
  }
  EXPECT_THAT(events_of("data: one\r\r\ndata: two\n\r\n", 1), ElementsAre("one", "two"));
}

TEST(EventStream, AnEventHasAnEnd) {
  EventReader reader;
  const std::string part(size_t{1} << 20, 'x');
  Status status;
  for (int i = 0; i < 17 && status.ok(); ++i) status = reader.push(part, [](std::string_view) {});
  EXPECT_EQ(status.code(), Code::invalid_argument);
}

TEST(EventStream, ValuesOfOtherTypesAreAbsent) {
  const CompletionEvent both = parse_completion_event(
      R"({"choices": [{"text": "a"}], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}})");
  EXPECT_EQ(both.text, "a");
  ASSERT_TRUE(both.usage.has_value());
  EXPECT_EQ(both.usage->prompt_tokens, 3);
  EXPECT_EQ(both.usage->tokens, 2);
  EXPECT_EQ(both.usage->cached_tokens, 1);
  for (const char* text : {"[DONE]", "", "[1]", R"({"choices": {"a": 1}})", R"({"choices": [3]})",
                           R"({"choices": [{"text": 5}]})", R"({"choices": [], "usage": null})"}) {
    const CompletionEvent other = parse_completion_event(text);
    EXPECT_TRUE(other.text.empty() && !other.usage) << text;
  }
  const CompletionEvent odd = parse_completion_event(
      R"({"usage": {"prompt_tokens": "3", "completion_tokens": -1, "prompt_tokens_details": 4}})");
  ASSERT_TRUE(odd.usage.has_value());
  EXPECT_EQ(odd.usage->prompt_tokens + odd.usage->tokens + odd.usage->cached_tokens, 0);
}

}  // namespace
}  // namespace redline::lab
