#include "base/topology.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace redline {
namespace {

CpuOrder order(const std::string& description, const std::vector<int>& allowed = {}) {
  auto result = synthetic_cpu_order(description, allowed);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? *result : CpuOrder{};
}

TEST(CpuOrder, CoresComeBeforeTheirSiblings) {
  const CpuOrder plain = order("core:4 pu:1");
  EXPECT_EQ(plain.cpus, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(plain.cores, 4);

  const CpuOrder threads = order("numa:2 core:2 pu:2");
  EXPECT_EQ(threads.cpus, (std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(threads.cores, 4);

  // The numbering of most servers: siblings half the machine apart. Nodes stay together all the same.
  const CpuOrder server = order("numa:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)");
  EXPECT_EQ(server.cpus, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(server.cores, 4);
}

TEST(CpuOrder, OnlyWhatIsAllowed) {
  const CpuOrder half = order("numa:2 core:2 pu:2", {1, 4, 5});
  EXPECT_EQ(half.cpus, (std::vector<int>{1, 4, 5}));
  EXPECT_EQ(half.cores, 2) << "1 is on one core, 4 and 5 share another";
  EXPECT_TRUE(order("core:2 pu:1", {9}).cpus.empty());
}

TEST(CpuOrder, NonsenseIsAnError) {
  auto result = synthetic_cpu_order("cores everywhere", {});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("cores everywhere"), std::string::npos);
}

TEST(CpuOrder, ThisMachineOffersWhatItsMaskAllows) {
  std::vector<int> cpus = cpu_order().cpus;
  std::sort(cpus.begin(), cpus.end());
  EXPECT_EQ(cpus, allowed_cpus());
  EXPECT_GE(cpu_order().cores, 1);
  EXPECT_LE(cpu_order().cores, static_cast<int>(cpus.size()));
}

}  // namespace
}  // namespace redline
