#include "base/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

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

TEST(CacheSizes, OneCacheOfEachLevel) {
  const auto sizes = synthetic_cache_sizes("l3:2(size=33554432) l2:4(size=1048576) l1d:1(size=32768) core:1 pu:2");
  ASSERT_TRUE(sizes.ok()) << sizes.status().to_string();
  EXPECT_EQ(sizes->l1d, 32 << 10);
  EXPECT_EQ(sizes->l2, 1 << 20);
  EXPECT_EQ(sizes->l3, 32 << 20) << "of one cache, not of all that a processor has";
  EXPECT_EQ(sizes->largest(), 32 << 20);
}

TEST(CacheSizes, MissingLevelsAreZero) {
  const auto sizes = synthetic_cache_sizes("core:2 pu:1");
  ASSERT_TRUE(sizes.ok()) << sizes.status().to_string();
  EXPECT_EQ(sizes->largest(), 0);
  EXPECT_FALSE(synthetic_cache_sizes("caches everywhere").ok());
}

// The kernel names the caches of a CPU in sysfs; hwloc reads them there, or asks the CPU where sysfs has none.
TEST(CacheSizes, ThisMachineAsSysfsHasIt) {
  const std::string folder = "/sys/devices/system/cpu/cpu0/cache/";
  CacheSizes expected;
  for (int i = 0; i < 8; ++i) {
    const std::string cache = folder + "index" + std::to_string(i) + "/";
    std::ifstream level_file(cache + "level"), type_file(cache + "type"), size_file(cache + "size");
    int level = 0;
    std::string type;
    int64_t kib = 0;
    if (!(level_file >> level) || !(type_file >> type) || !(size_file >> kib) || type == "Instruction") continue;
    (level == 1 ? expected.l1d : level == 2 ? expected.l2 : expected.l3) = kib << 10;
  }
  if (expected.largest() == 0) GTEST_SKIP() << folder << " has no caches";
  EXPECT_GE(cache_sizes().l1d, expected.l1d) << "cores of another kind may have more";
  EXPECT_GE(cache_sizes().l2, expected.l2);
  EXPECT_EQ(cache_sizes().l3, expected.l3);
}

}  // namespace
}  // namespace redline
