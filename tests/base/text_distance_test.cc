#include "base/text_distance.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

TEST(TextDistance, CountsEdits) {
  EXPECT_EQ(text_distance("", ""), 0);
  EXPECT_EQ(text_distance("", "abc"), 3);
  EXPECT_EQ(text_distance("abc", ""), 3);
  EXPECT_EQ(text_distance("temprature", "temperature"), 1);
  EXPECT_EQ(text_distance("thraeds", "threads"), 1);  // neighbours swapped
  EXPECT_EQ(text_distance("Q4_K", "q4_k"), 0);
  EXPECT_EQ(text_distance("kitten", "sitting"), 3);
}

TEST(NearestName, FindsSlipsOnly) {
  const std::string_view names[] = {"run", "logits", "bench", "inspect", "devices", "tokenize", "convert", "version"};
  EXPECT_EQ(nearest_name("benhc", names), "bench");
  EXPECT_EQ(nearest_name("inspekt", names), "inspect");
  EXPECT_EQ(nearest_name("rnu", names), "run");
  EXPECT_EQ(nearest_name("tok", names), "tokenize");  // the beginning of one
  const std::string_view flags[] = {"help", "temperature"};
  EXPECT_EQ(nearest_name("temp", flags), "temperature");  // two edits from "help"
  EXPECT_EQ(nearest_name("hep", flags), "help");
  EXPECT_EQ(nearest_name("xylophone", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("zz", names), "");
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'a'), names), "");
  EXPECT_EQ(nearest_name("run", {}), "");
}

TEST(NearestName, EndsAMessage) {
  const std::string_view names[] = {"--threads", "--seed"};
  EXPECT_EQ(did_you_mean("--thread", names), "; did you mean \"--threads\"?");
  EXPECT_EQ(did_you_mean("--colour", names), "");
}

}  // namespace
}  // namespace redline
