// Where the reasoning of an answer ends, in pieces of any size.
#include "chat/reasoning_tracker.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

/// After each byte: '.' before the reasoning is known, 'r' in it, 'e' behind it.
std::string tracked(std::string_view chat_template, std::string_view prompt, std::string_view text, size_t step = 1) {
  ReasoningTracker tracker(chat_template, prompt);
  std::string states;
  for (size_t at = 0; at < text.size(); at += step) {
    tracker.add(text.substr(at, step));
    states += tracker.has_ended() ? 'e' : tracker.is_reasoning() ? 'r' : '.';
  }
  return states;
}

constexpr std::string_view kThink = "<think> </think>", kHarmony = "<|channel|> <|message|> analysis";

TEST(ReasoningTracker, EndsAtTheMarker) {
  EXPECT_EQ(tracked(kThink, "a<think>\n", "a</b</think>x"), "rrrrrrrrrrree");
  EXPECT_EQ(tracked(kThink, "a", "\n<think>a</think>x"), ".......rrrrrrrrree");
  EXPECT_EQ(tracked(kThink, "a", "<thx"), "...e");
  EXPECT_EQ(tracked(kThink, "a", "{}"), "ee");
  EXPECT_EQ(tracked(kThink, "a<think></think>", "a"), "e");
  EXPECT_EQ(tracked("no markers", "a", "a"), "e");
  EXPECT_EQ(tracked(kThink, "a", "<think>a</think>x", 100), "e");
  EXPECT_EQ(tracked(kThink, "a", "<think>a</thi", 100), "r");
}

TEST(ReasoningTracker, Channels) {
  const std::string analysis = "<|channel|>analysis<|message|>";
  EXPECT_EQ(tracked(kHarmony, "<|start|>assistant", analysis + "a<|end|>", 30), "re");
  EXPECT_EQ(tracked(kHarmony, "<|start|>assistant", "<|channel|>final<|message|>a", 40), "e");
  EXPECT_EQ(tracked(kHarmony, "a", "<|start|>assistant" + analysis + "a", 100), "r");
}

}  // namespace
}  // namespace redline
