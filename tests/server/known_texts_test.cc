// Continuing from the tokens that a model has generated: every byte is a token here, and known texts have others.
#include "server/known_texts.h"

#include <gtest/gtest.h>

#include <random>

#include "server/answers.h"
#include "server/fake_engine.h"

namespace redline::server {
namespace {

using Ids = std::vector<int32_t>;

class KnownTextsOfAnEngine : public ::testing::Test {
 protected:
  const testing::FakeEngine engine_{""};
  KnownTexts known_;

  static Ids ids(std::string_view text) { return {text.begin(), text.end()}; }
  Ids encode(const std::string& text, const std::string& scope = "") {
    return known_.encode(engine_, scope, text, false).value();
  }
};

TEST_F(KnownTextsOfAnEngine, ATextGoesOnFromItsTokensAtAControlToken) {
  EXPECT_EQ(encode("ab\1c"), ids("ab\1c"));
  known_.add("", "ab", {200});
  EXPECT_EQ(encode("ab\1c"), (Ids{200, 1, 'c'}));
  EXPECT_EQ(encode("ab"), Ids{200}) << "nothing follows";
  EXPECT_EQ(encode("abc"), ids("abc")) << "a token may reach across";
  EXPECT_EQ(encode("a\1"), ids("a\1"));
  EXPECT_EQ(encode("xab\1"), ids("xab\1"));
}

TEST_F(KnownTextsOfAnEngine, TheLongestKnownTextCounts) {
  known_.add("", "ab", {200});
  known_.add("", "ab\1cd", {200, 1, 201});
  known_.add("", "ab\1cdef", {202});
  EXPECT_EQ(encode("ab\1cd\1e"), (Ids{200, 1, 201, 1, 'e'}));
  EXPECT_EQ(encode("ab\1cde\1"), (Ids{200, 1, 'c', 'd', 'e', 1})) << "a shorter one, where no token reaches across";
  known_.add("", "ab", {203});
  EXPECT_EQ(encode("ab\1x"), (Ids{203, 1, 'x'})) << "what was written last";
}

TEST_F(KnownTextsOfAnEngine, ScopesAreKeptApart) {
  known_.add("ann", "ab", {200});
  EXPECT_EQ(encode("ab\1"), ids("ab\1"));
  EXPECT_EQ(encode("ab\1", "ann"), (Ids{200, 1}));
  known_.add("a", "nnab", {201});  // the same bytes, cut elsewhere
  EXPECT_EQ(encode("ab\1", "ann"), ids("ab\1"));
  EXPECT_EQ(encode("nnab\1", "a"), (Ids{201, 1}));
  known_.clear();
  EXPECT_EQ(encode("nnab\1", "a"), ids("nnab\1"));
}

TEST_F(KnownTextsOfAnEngine, TheLeastRecentlyUsedGoFirst) {
  KnownTexts small(4000);
  const std::string a(1000, 'a'), b(1000, 'b'), c(1000, 'c');
  for (const std::string& text : {a, b, c}) small.add("", text, {200});
  const auto is_known = [&](const std::string& text) {
    return small.encode(engine_, "", text, false).value() == Ids{200};
  };
  EXPECT_TRUE(is_known(a) && is_known(b) && is_known(c));
  is_known(a);
  small.add("", std::string(1000, 'd'), {200});
  EXPECT_TRUE(is_known(a) && is_known(c));
  EXPECT_FALSE(is_known(b));
  small.add("", std::string(5000, 'e'), {200});
  EXPECT_TRUE(is_known(a)) << "one that is too large takes no room";
}

// Against a list that is searched from its beginning.
TEST_F(KnownTextsOfAnEngine, RandomTexts) {
  std::mt19937 random(1);
  std::map<std::string, Ids> list;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (uint32_t n = random() % 9; n > 0; --n) text += "a\1b"[random() % 3];
    if (random() % 4 == 0 && !text.empty()) {
      list[text] = {static_cast<int32_t>(100 + random() % 100)};
      known_.add("", text, list[text]);
      continue;
    }
    Ids want = ids(text);
    for (const auto& [known, tokens] : list) {  // longer ones come later
      if (!text.starts_with(known) || (text.size() > known.size() && text[known.size()] != '\1')) continue;
      want = tokens;
      const Ids rest = ids(text.substr(known.size()));
      want.insert(want.end(), rest.begin(), rest.end());
    }
    ASSERT_EQ(encode(text), want) << round;
  }
}

}  // namespace
}  // namespace redline::server
