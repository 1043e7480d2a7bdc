#include "cli/flag_names.h"

#include <gtest/gtest.h>

namespace redline::cli {
namespace {

TEST(FlagNames, MembersBecomeFlags) {
  EXPECT_EQ(with_flag_names("top_p is 0; expected more than 0"), "--top-p is 0; expected more than 0");
  EXPECT_EQ(with_flag_names("set true_cfg_scale to 1"), "set --true-cfg-scale to 1");
  EXPECT_EQ(with_flag_names("raise max_sequences"), "raise --batch");
}

TEST(FlagNames, PathsKeysAndOtherWordsStay) {
  for (const char* message : {"models/top_p: no such file", "top_p.gguf: no such file", "\"top_p\" is not a list",
                              "my_top_p is 0", "", "ünïcode top_px"})
    EXPECT_EQ(with_flag_names(message), message);
}

}  // namespace
}  // namespace redline::cli
