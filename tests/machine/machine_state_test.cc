#include "machine/machine_state.h"

#include <cmath>

#include "base/topology.h"
#include "support/isa_test.h"

namespace redline {
namespace {

TEST(MachineState, OffByMoreThanNoiseDiffers) {
  const MachineState a{30, 400, 50};
  EXPECT_FALSE(differs(a, a));
  EXPECT_FALSE(differs(a, {33, 430, 70}));
  EXPECT_TRUE(differs(a, {36, 400, 50}));             // another level of bandwidth
  EXPECT_TRUE(differs({36, 400, 50}, a));             // whichever comes first
  EXPECT_TRUE(differs(a, {30, 330, 50}));             // a neighbour takes a part of the cores
  EXPECT_TRUE(differs(a, {30, 400, 170}));            // the cores moved apart
  EXPECT_FALSE(differs({30, 400, 0}, {30, 400, 0}));  // one thread has no latency
}

using StatePerIsa = IsaTest;
TEST_P(StatePerIsa, ASampleIsPositiveAndFinite) {
  for (const int threads : {1, 0}) {
    auto sampler = MachineSampler::make(kernels(), threads);
    ASSERT_TRUE(sampler.ok()) << sampler.status().to_string();
    for (int i = 0; i < 2; ++i) {
      const auto state = sampler->sample();
      ASSERT_TRUE(state.ok()) << state.status().to_string();
      EXPECT_TRUE(std::isfinite(state->read_gb_s) && state->read_gb_s > 0);
      EXPECT_TRUE(std::isfinite(state->f32_gop_s) && state->f32_gop_s > 0);
      EXPECT_EQ(state->ping_pong_ns > 0, threads != 1 && allowed_cpus().size() > 1);
    }
  }
}
REDLINE_INSTANTIATE_PER_ISA(StatePerIsa);

TEST(TimedLoop, EveryThreadRunsEveryIterationAndKeepsTheCallersAffinity) {
  const auto kernels = cpu_kernels_for("");
  ASSERT_TRUE(kernels.ok());
  const std::vector<int> cpus = allowed_cpus();
  std::vector<std::vector<int>> done(cpus.size());
  const auto rates = run_timed_loop(TimedBy::kWall, cpus, 5, *kernels, [&](int thread, int iteration) {
    done[static_cast<size_t>(thread)].push_back(iteration);
    return 1.0;
  });
  ASSERT_TRUE(rates.ok());
  EXPECT_GE(rates->best, rates->median);
  EXPECT_GT(rates->median, 0);
  for (const auto& iterations : done) EXPECT_EQ(iterations, (std::vector<int>{0, 1, 2, 3, 4}));
  if (cpus.size() > 1) {
    EXPECT_GT(ping_pong_ns(cpus[0], cpus[1], 2), 0);
    EXPECT_GT(wake_up_us(cpus[0], cpus[1], 3), 0);
  }
  EXPECT_EQ(allowed_cpus(), cpus);
}

}  // namespace
}  // namespace redline
