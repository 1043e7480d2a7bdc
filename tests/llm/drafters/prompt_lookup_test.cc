// Prompt lookup against a search over the whole text.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "llm/drafters/drafter.h"
#include "redline/text.h"

namespace redline {
namespace {

std::unique_ptr<Drafter> make_prompt_lookup() {
  return std::move(drafter_from_name("prompt-lookup", {.vocab_size = 100})).value()();
}

/// The tokens after the longest earlier occurrence of the last tokens, at least 3 and counted up to 32; of equally long
/// ones, after the latest.
std::vector<int32_t> looked_up(const std::vector<int32_t>& text, int64_t count) {
  const int64_t size = std::ssize(text);
  int64_t best = -1, best_length = 2;
  for (int64_t at = size - 2; at >= 0; --at) {
    int64_t length = 0;
    while (length <= at && length < 32 && text[static_cast<size_t>(at - length)] >= 0 &&
           text[static_cast<size_t>(at - length)] == text[static_cast<size_t>(size - 1 - length)])
      ++length;
    if (length > best_length) best = at, best_length = length;
  }
  std::vector<int32_t> all = text;
  for (int64_t i = best + 1; best >= 0 && i <= best + count && all[static_cast<size_t>(i)] >= 0; ++i)
    all.push_back(all[static_cast<size_t>(i)]);
  return {all.begin() + size, all.end()};
}

TEST(PromptLookup, EqualsASearchOverTheWholeText) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const auto drafter = make_prompt_lookup();
    std::vector<int32_t> text;
    // Few kinds of tokens repeat often; below 0 are rows of embeddings.
    std::uniform_int_distribution<int32_t> token(round % 3 == 0 ? -1 : 0, 1 + round % 7);
    int64_t accepted = 0;
    while (text.size() < 60) {
      std::vector<int32_t> more(std::uniform_int_distribution<size_t>(0, 4)(random));
      for (int32_t& t : more) t = token(random);
      text.insert(text.end(), more.begin(), more.end());
      drafter->observe(more, accepted);
      Draft draft;
      ASSERT_TRUE(drafter->propose(7, draft).ok());
      EXPECT_TRUE(draft.is_chain());
      EXPECT_EQ(draft.tokens, looked_up(text, 7)) << "round " << round << ", " << text.size() << " tokens";
      accepted = 0;
      if (random() % 4 == 0 && !text.empty()) {
        text.resize(random() % text.size());
        drafter->roll_back(std::ssize(text));
      }
    }
  }
}

TEST(PromptLookup, CopiesAndRepeatsBeyondTheEnd) {
  const auto drafter = make_prompt_lookup();
  drafter->observe(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3}, 0);
  Draft draft;
  ASSERT_TRUE(drafter->propose(4, draft).ok());
  EXPECT_EQ(draft.tokens, (std::vector<int32_t>{4, 5, 6, 7}));
  drafter->roll_back(0);
  drafter->observe(std::vector<int32_t>{9, 9, 9, 9}, 0);
  draft.clear();
  ASSERT_TRUE(drafter->propose(3, draft).ok());
  EXPECT_EQ(draft.tokens, (std::vector<int32_t>{9, 9, 9}));
  draft.clear();
  ASSERT_TRUE(drafter->propose(0, draft).ok());
  EXPECT_TRUE(draft.tokens.empty());
}

TEST(DrafterRegistry, NamesAndErrors) {
  EXPECT_THAT(drafters(), ::testing::Contains("prompt-lookup"));
  EXPECT_FALSE(drafter_from_name("none", {}).value());
  const Status unknown = drafter_from_name("prompt-lokup", {}).status();
  EXPECT_EQ(unknown.code(), Code::invalid_argument);
  EXPECT_THAT(unknown.message(),
              ::testing::StartsWith("speculate: there is no drafter \"prompt-lokup\" (there are \"none\", "));
  EXPECT_THAT(unknown.message(), ::testing::EndsWith("; did you mean \"prompt-lookup\"?"));
}

}  // namespace
}  // namespace redline
