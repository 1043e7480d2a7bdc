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

TEST(NearestName, PrefersTheSameBeginningAndTheNextVersion) {
  const std::string_view types[] = {"Q8_0", "Q6_K", "Q4_K_M", "Q4_K_S"};
  EXPECT_EQ(nearest_name("q4_kk", types), "Q4_K_M");  // Q6_K is two edits away as well
  const std::string_view families[] = {"gemma2", "gemma3", "qwen2", "qwen3"};
  EXPECT_EQ(nearest_name("gemma4", families), "gemma3");
  EXPECT_EQ(nearest_name("qwen1", families), "qwen2");
}

TEST(NearestName, StandsBehindAKindThatIsNotSupported) {
  const std::string_view names[] = {"BPE", "Unigram"};
  EXPECT_EQ(the_nearest("Unigramm", names), " (the nearest is Unigram)");
  EXPECT_EQ(the_nearest("Unigramm", "BPE, Unigram"), " (the nearest is Unigram)");
  EXPECT_EQ(the_nearest("Bpe2", "BPE, Unigram"), " (the nearest is BPE)");
  EXPECT_EQ(the_nearest("WordLattice", "BPE, Unigram"), "");
  EXPECT_EQ(the_nearest("BPE", ""), "");
}

TEST(NearestName, EndsAMessage) {
  const std::string_view names[] = {"--threads", "--seed"};
  EXPECT_EQ(did_you_mean("--thread", names), "; did you mean \"--threads\"?");
  EXPECT_EQ(did_you_mean("--colour", names), "");
}

}  // namespace
}  // namespace redline
