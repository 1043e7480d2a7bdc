#include "llm/stop_strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>

namespace redline {
namespace {

using ::testing::HasSubstr;

struct Ending {
  std::string shown;
  int which = -1;
};

/// The rule, byte by byte: the first end of any stop string; the longest of those that end there.
Ending stop_strings_reference(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    for (size_t s = 0; s < stops.size(); ++s)
      if (std::string_view(text).substr(0, end).ends_with(stops[s]) &&
          (best < 0 || stops[s].size() > stops[size_t(best)].size()))
        best = int(s);
    if (best >= 0) return {text.substr(0, end - stops[size_t(best)].size()), best};
  }
  return {text, -1};
}

StopStrings make(std::vector<std::string> stops) {
  auto result = StopStrings::create(std::move(stops));
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return std::move(result).value();
}

TEST(StopStrings, FindsAcrossPieces) {
  StopStrings stops = make({"END"});
  EXPECT_EQ(stops.push("one E"), "one ");
  EXPECT_EQ(stops.push("N"), "");
  EXPECT_EQ(stops.push("d E"), "ENd ");
  EXPECT_EQ(stops.push("ND and more"), "");
  EXPECT_TRUE(stops.found());
  EXPECT_EQ(stops.which(), 0);
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, GivesBackWhatItHeld) {
  StopStrings stops = make({"\n\n", "\nUser:"});
  EXPECT_EQ(stops.push("hello\nUse"), "hello");
  EXPECT_EQ(stops.finish(), "\nUse");
  EXPECT_FALSE(stops.found());
}

TEST(StopStrings, HoldsNoMoreThanNeeded) {
  StopStrings stops = make({"aab"});
  EXPECT_EQ(stops.push("aaaa"), "aa");
  EXPECT_EQ(stops.push("a"), "a");
  EXPECT_EQ(stops.push("b"), "");
  EXPECT_TRUE(stops.found());
}

TEST(StopStrings, TheFirstToBeCompleteWins) {
  StopStrings inner = make({"abcd", "bc"});
  EXPECT_EQ(inner.push("xabcd"), "xa");
  EXPECT_EQ(inner.which(), 1);
  StopStrings longest = make({"c", "abc"});
  EXPECT_EQ(longest.push("xabc"), "x");
  EXPECT_EQ(longest.which(), 1);
}

TEST(StopStrings, NoneLetsEverythingThrough) {
  StopStrings stops = make({});
  EXPECT_EQ(stops.push("text"), "text");
  EXPECT_EQ(stops.finish(), "");
  StopStrings fresh;
  EXPECT_EQ(fresh.push("text"), "text");
}

TEST(StopStrings, ShowsWholeCharacters) {
  StopStrings stops = make({"é!", "日本"});
  EXPECT_EQ(stops.push("aé"), "a");
  EXPECT_EQ(stops.push("è日"), "éè");
  EXPECT_EQ(stops.push("月"), "日月");
}

TEST(StopStrings, RefusesWhatCannotWork) {
  auto empty = StopStrings::create({"a", ""});
  EXPECT_EQ(empty.status().code(), Code::invalid_argument);
  EXPECT_THAT(empty.status().message(), HasSubstr("stop string 2 is empty"));
  for (const char* bad :
       {"\x80", "a\xFF", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\xE0\x80\x80"}) {
    auto result = StopStrings::create({bad});
    EXPECT_EQ(result.status().code(), Code::invalid_argument);
    EXPECT_THAT(result.status().message(), HasSubstr("stop string 1 is not UTF-8"));
  }
  EXPECT_TRUE(StopStrings::create({"\xF4\x8F\xBF\xBF", "\xEF\xBB\xBF", "\xE0\xA0\x80"}).ok());
}

TEST(StopStrings, EqualsTheReferenceHoweverTheTextIsCut) {
  std::mt19937 random(1);
  const auto pick = [&](int n) { return int(random() % unsigned(n)); };
  const std::vector<std::string> letters = {"a", "b", "é", "日"};
  const auto word = [&](int length) {
    std::string s;
    for (int i = 0; i < length; ++i) s += letters[size_t(pick(i % 2 ? 2 : 4))];
    return s;
  };
  int found = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> words;
    for (int i = pick(4); i > 0; --i) words.push_back(word(1 + pick(5)));
    std::vector<std::string> characters;
    std::string text;
    for (int i = pick(30); i > 0; --i) text += characters.emplace_back(letters[size_t(pick(4))]);
    StopStrings stops = make(words);
    std::string shown, piece;
    for (const std::string& c : characters) {
      piece += c;
      if (pick(3)) continue;
      shown += stops.push(piece);
      piece.clear();
    }
    shown += stops.push(piece);
    shown += stops.finish();
    const Ending expected = stop_strings_reference(text, words);
    ASSERT_EQ(shown, expected.shown) << "text " << text << " stops " << ::testing::PrintToString(words);
    if (expected.which < 0) {
      ASSERT_EQ(stops.which(), -1);
    } else {
      ASSERT_EQ(words[size_t(stops.which())], words[size_t(expected.which)]);
      ++found;
    }
  }
  EXPECT_GT(found, 2000);
}

}  // namespace
}  // namespace redline
