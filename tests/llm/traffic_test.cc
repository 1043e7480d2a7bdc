// The scheduler over recorded traffic: chats, an agent's bursts, documents in the background, and an editor that
// cancels most of its requests.
#include "llm/traffic.h"

#include <gmock/gmock.h>

#include <fstream>

#include "support/temporary_folder.h"

namespace redline::testing {
namespace {

using ::testing::HasSubstr;

const std::string kTrafficMixed = REDLINE_SOURCE_DIR "/tests/llm/traffic/mixed.jsonl";

SimulatedMachine machine(int64_t pages) {
  SimulatedMachine m;
  m.sequences = 32;
  m.pages = pages;
  m.step_ms = 20;  // a small model on a few cores
  m.token_ms = 0.4;
  return m;
}

/// Steps from arrival to the first token, of a client's requests that ended by themselves; sorted.
std::vector<int64_t> first_tokens(const SchedulerSimulator& s, const std::string& client) {
  std::vector<int64_t> steps;
  for (const SimulatedRequest& r : s.requests)
    if (r.client.starts_with(client) && r.reason == FinishReason::kLength)
      steps.push_back(r.first_token - r.arrival_step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

TEST(RecordedTraffic, FairnessAllRequestsAreServedInTime) {
  const auto traffic = read_traffic(kTrafficMixed);
  ASSERT_TRUE(traffic.ok()) << traffic.status().to_string();
  ASSERT_GT(traffic->size(), 100u);
  for (const int64_t pages : {4000, 1000}) {
    SchedulerSimulator s(machine(pages), *traffic);
    ASSERT_TRUE(s.run(100000)) << pages;
    int64_t cached = 0;
    for (const SimulatedRequest& r : s.requests) {
      EXPECT_FALSE(r.is_refused);
      EXPECT_TRUE(r.reason == FinishReason::kLength || r.cancel_ms > 0);
      cached += r.cached;
    }
    // Each burst of the agent's 60 calls computes the system prompt at most once.
    EXPECT_GE(cached, 55 * 1400 / 32 * 32 - 5 * 1400) << pages;
    // Urgent requests wait for the step in progress and their own prompt; chats share the steps with the agent and the
    // documents.
    const auto editor = first_tokens(s, "editor"), chat = first_tokens(s, "chat"), batch = first_tokens(s, "batch");
    EXPECT_EQ(batch.size(), 4u);
    EXPECT_LE(editor.back(), 8) << pages;
    EXPECT_LE(chat[chat.size() / 2], 10) << pages;
    EXPECT_LE(chat.back(), 60) << pages;
    EXPECT_LE(batch.back(), 600) << pages;
  }
}

TEST(RecordedTraffic, ErrorsNameTheLine) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/traffic.jsonl";
  const auto error = [&](const std::string& line) {
    std::ofstream(path) << R"({"at_ms": 0, "prompt": 3, "output": 4})"
                        << "\n"
                        << line << "\n";
    return read_traffic(path).status().message();
  };
  EXPECT_EQ(error(""), "");
  EXPECT_THAT(error("{"), HasSubstr("traffic.jsonl:2: no JSON object"));
  EXPECT_THAT(error("[1]"), HasSubstr(":2: no JSON object"));
  EXPECT_THAT(error(R"({"at_ms": "now", "prompt": 3, "output": 4})"), HasSubstr("\"at_ms\" is of the wrong type"));
  EXPECT_THAT(error(R"({"at": 0, "prompt": 3, "output": 4})"), HasSubstr("\"at\" is unknown"));
  EXPECT_THAT(error(R"({"at_ms": 0, "output": 3})"), HasSubstr("are needed"));
  EXPECT_THAT(error(R"({"prompt": 3, "output": 1})"), HasSubstr("are needed"));
  EXPECT_THAT(read_traffic(path + ".none").status().message(), HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace redline::testing
