// The search for masks, on a small made-up network whose velocities are known exactly.
#include "lab/images/mask_search.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "diffusion/step_cache.h"

namespace redline::lab {
namespace {

using ::testing::HasSubstr;

/// dx/ds = W2 tanh(W1 x + b s) / (1.1 - s): turns fast at the noisy end, as an image model under guidance does.
class MadeUpNetwork {
 public:
  explicit MadeUpNetwork(uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (auto* w : {&w1_, &w2_})
      for (double& v : *w) v = normal(random) / std::sqrt(kSize);
    for (double& v : b_) v = 2 * normal(random);
  }
  std::vector<double> start(uint32_t seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::vector<double> x(kSize);
    for (double& v : x) v = normal(random);
    return x;
  }
  std::vector<float> velocity(const std::vector<double>& x, double sigma) const {
    std::vector<double> hidden(kSize);
    for (int64_t i = 0; i < kSize; ++i) {
      double sum = b_[i] * sigma;
      for (int64_t j = 0; j < kSize; ++j) sum += w1_[i * kSize + j] * x[j];
      hidden[i] = std::tanh(sum);
    }
    std::vector<float> v(kSize);
    for (int64_t i = 0; i < kSize; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < kSize; ++j) sum += w2_[i * kSize + j] * hidden[j];
      v[i] = static_cast<float>(sum / (1.1 - sigma));
    }
    return v;
  }
  static constexpr int64_t kSize = 16;

 private:
  std::array<double, kSize * kSize> w1_, w2_;
  std::array<double, kSize> b_;
};

double sigma_at(int64_t step, int64_t steps) {
  const double even = 1 - static_cast<double>(step) / static_cast<double>(steps);
  return 2 * even / (1 + even);
}

/// Euler from `x` under a cache; `rule` "none" computes every step.
std::vector<double> run(const MadeUpNetwork& network, std::vector<double> x, int64_t steps, const std::string& rule,
                        Trajectory* trajectory = nullptr) {
  RuleRequest request;
  request.rule = rule;
  Result<StepCache> cache = StepCache::make(request);
  EXPECT_TRUE(cache.ok()) << cache.status().to_string();
  std::vector<float> latents(x.size()), velocity(x.size());
  for (int64_t i = 0; i < steps; ++i) {
    const double sigma = sigma_at(i, steps), next = sigma_at(i + 1, steps);
    std::copy(x.begin(), x.end(), latents.begin());
    CacheRow row;
    row.at = {i, steps, sigma, next, next - sigma};
    row.latents = latents;
    row.model_output = velocity;
    std::span<CacheRow> rows(&row, 1);
    EXPECT_TRUE(cache->before(rows).ok());
    if (row.action == CacheAction::kRunFront) {
      const std::vector<float> v = network.velocity(x, sigma);
      std::copy(v.begin(), v.end(), velocity.begin());
    }
    EXPECT_TRUE(cache->after_front(rows).ok());
    EXPECT_TRUE(cache->after_tail(rows).ok());
    if (trajectory != nullptr) {
      trajectory->u.push_back(u_of_sigma(sigma));
      trajectory->step_sizes.push_back(next - sigma);
      trajectory->velocity.push_back(velocity);
    }
    for (size_t k = 0; k < x.size(); ++k) x[k] += (next - sigma) * velocity[k];
  }
  return x;
}

std::string rule_of(const std::vector<int64_t>& computed) {
  std::string text = "redline:steps=";
  for (size_t i = 0; i < computed.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : "+", computed[i]);
  return text;
}

double squared_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

std::vector<Trajectory> trajectories_of(const MadeUpNetwork& network, int64_t steps, uint32_t count) {
  std::vector<Trajectory> all(count);
  for (uint32_t t = 0; t < count; ++t) run(network, network.start(100 + t), steps, "none", &all[t]);
  return all;
}

TEST(MaskCosts, IsTheErrorOfTheLatentsOnStoredRuns) {
  const MadeUpNetwork network(1);
  const int64_t steps = 12;
  const std::vector<Trajectory> runs = trajectories_of(network, steps, 3);
  const MaskCosts costs(runs);
  for (const auto& [i, j, k] : {std::array<int64_t, 3>{-1, 0, 3}, {0, 2, 6}, {2, 6, 12}, {-1, 0, 12}, {4, 5, 6}}) {
    double want = 0;
    for (const Trajectory& t : runs)
      for (int64_t e = 0; e < MadeUpNetwork::kSize; ++e) {
        double error = 0;
        for (int64_t s = j + 1; s < k; ++s) {
          const double at_j = t.velocity[j][e];
          double line = at_j;
          if (k < steps) line += (t.u[s] - t.u[j]) / (t.u[k] - t.u[j]) * (t.velocity[k][e] - at_j);
          else if (i >= 0) line += (t.u[s] - t.u[j]) / (t.u[j] - t.u[i]) * (at_j - t.velocity[i][e]);
          error += t.step_sizes[s] * (line - t.velocity[s][e]);
        }
        want += error * error / (3 * MadeUpNetwork::kSize);
      }
    EXPECT_NEAR(costs.cost(i, j, k), want, 1e-9 * (1 + want)) << i << " " << j << " " << k;
  }
}

TEST(PlanMask, IsTheBestOfAllMasks) {
  const int64_t steps = 9;
  std::mt19937 random(4);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<double> table(10 * 10 * 10);
    for (double& v : table) v = std::uniform_real_distribution<double>()(random);
    const auto cost = [&](int64_t i, int64_t j, int64_t k) { return table[(i + 1) * 100 + j * 10 + k]; };
    const auto total = [&](const std::vector<int64_t>& mask) {
      double sum = 0;
      for (size_t n = 0; n < mask.size(); ++n)
        sum += cost(n == 0 ? -1 : mask[n - 1], mask[n], n + 1 < mask.size() ? mask[n + 1] : steps);
      return sum;
    };
    for (const int64_t forced : {1, 3})
      for (int64_t budget = forced; budget <= steps; ++budget) {
        const Result<std::vector<int64_t>> planned = plan_mask(steps, budget, forced, cost);
        ASSERT_TRUE(planned.ok());
        ASSERT_EQ(std::ssize(*planned), budget);
        double best = 1e9;
        for (int64_t bits = 0; bits < 1 << steps; ++bits) {
          std::vector<int64_t> mask;
          for (int64_t s = 0; s < steps; ++s)
            if (bits >> s & 1) mask.push_back(s);
          if (std::ssize(mask) != budget || mask[forced - 1] != forced - 1) continue;
          best = std::min(best, total(mask));
        }
        EXPECT_DOUBLE_EQ(total(*planned), best) << "budget " << budget << ", forced " << forced;
        for (int64_t s = 0; s < forced; ++s) EXPECT_EQ((*planned)[s], s);
      }
  }
}

TEST(PlanMask, IsNeverWorseThanMasksMadeByRuleOnItsRuns) {
  // Made-up runs of all lengths and smoothness: on what was stored the plan is the best there is, so neither even
  // spacing nor the power law may beat it.
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const auto steps = static_cast<int64_t>(5 + 3 * seed);
    const MadeUpNetwork network(seed);
    const MaskCosts costs(trajectories_of(network, steps, 1 + seed % 3));
    const auto cost = [&](int64_t i, int64_t j, int64_t k) { return costs.cost(i, j, k); };
    const auto total = [&](const std::vector<int64_t>& mask) {
      double sum = 0;
      for (size_t n = 0; n < mask.size(); ++n)
        sum += cost(n == 0 ? -1 : mask[n - 1], mask[n], n + 1 < mask.size() ? mask[n + 1] : steps);
      return sum;
    };
    for (int64_t budget = 2; budget <= steps; ++budget) {
      const auto planned = plan_mask(steps, budget, 1, cost);
      ASSERT_TRUE(planned.ok());
      EXPECT_EQ(std::ssize(*planned), budget);
      std::vector<int64_t> even, power;
      for (int64_t n = 0; n < budget; ++n) even.push_back(n * steps / budget);
      const std::vector<uint8_t> mask = power_mask(steps, budget);
      for (int64_t s = 0; s < steps; ++s)
        if (mask[s] != 0) power.push_back(s);
      EXPECT_LE(total(*planned), total(even) * (1 + 1e-12)) << steps << " steps, budget " << budget;
      EXPECT_LE(total(*planned), total(power) * (1 + 1e-12)) << steps << " steps, budget " << budget;
    }
  }
}

TEST(PlanMask, RefusesWhatCannotBe) {
  const auto free = [](int64_t, int64_t, int64_t) { return 0.0; };
  EXPECT_THAT(plan_mask(10, 2, 3, free).status().message(), HasSubstr("it can be 3 .. 10"));
  EXPECT_THAT(plan_mask(10, 11, 1, free).status().message(), HasSubstr("it can be 1 .. 10"));
}

TEST(MaskSearch, BeatsTheMaskWithoutCalibrationOnOtherRuns) {
  const MadeUpNetwork network(7);
  const int64_t steps = 24, budget = 6;
  const MaskCosts costs(trajectories_of(network, steps, 6));
  const auto error = [&](const std::vector<int64_t>& computed, uint32_t first) {
    double sum = 0;
    for (uint32_t t = 0; t < 6; ++t) {
      const std::vector<double> x = network.start(first + t);
      sum += squared_distance(run(network, x, steps, rule_of(computed)), run(network, x, steps, "none"));
    }
    return sum / 6;
  };
  const Result<std::vector<int64_t>> planned =
      plan_mask(steps, budget, 1, [&](int64_t i, int64_t j, int64_t k) { return costs.cost(i, j, k); });
  ASSERT_TRUE(planned.ok());
  const Result<ClimbResult> climbed = climb_mask(
      steps, *planned, 3, 300, [&](const std::vector<int64_t>& mask) -> Result<double> { return error(mask, 100); });
  ASSERT_TRUE(climbed.ok());
  EXPECT_LE(climbed->error, error(*planned, 100));
  EXPECT_LE(climbed->evaluations, 301);
  EXPECT_EQ(std::ssize(climbed->computed), budget);
  EXPECT_EQ(climbed->computed[0], 0);
  std::vector<int64_t> power;
  const std::vector<uint8_t> mask = power_mask(steps, budget);
  for (int64_t s = 0; s < steps; ++s)
    if (mask[s] != 0) power.push_back(s);
  EXPECT_LT(error(climbed->computed, 500), error(power, 500)) << "starting points that the search did not see";
}

TEST(ClimbMask, StopsAtItsBoundAndOnErrors) {
  int64_t calls = 0;
  const auto counted = [&](const std::vector<int64_t>& mask) -> Result<double> {
    ++calls;
    return static_cast<double>(mask[1]);
  };
  const Result<ClimbResult> bounded = climb_mask(50, {0, 40, 45}, 3, 5, counted);
  ASSERT_TRUE(bounded.ok());
  EXPECT_EQ(calls, 6);
  const Result<ClimbResult> free = climb_mask(50, {0, 40, 45}, 3, 10000, counted);
  EXPECT_EQ(free->computed[1], 1) << "the error falls with the place of the second step";
  const Result<ClimbResult> failed =
      climb_mask(9, {0, 4}, 1, 10, [](const std::vector<int64_t>&) -> Result<double> { return internal("no"); });
  EXPECT_EQ(failed.status().message(), "no");
}

}  // namespace
}  // namespace redline::lab
