// A step cache around real networks: the tiny random ones of tests/golden/image.
#include "diffusion/cached_denoiser.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "support/counted_device.h"
#include "support/denoiser_harness.h"

namespace redline {
namespace {

using ::testing::Contains;
using testing::GoldenDenoiser, testing::make_denoiser, testing::random_batch;
using ::testing::HasSubstr;

constexpr int64_t kSteps = 12;

double sigma_at(int64_t step) {
  const double even = 1 - static_cast<double>(step) / kSteps;
  return 2 * even / (1 + even);
}

struct Drawn {
  std::vector<float> latents;        ///< of all images
  std::vector<std::string> actions;  ///< of each row: # computed, + head alone, . nothing
  double share = 0;
  int64_t computed_images = 0;  ///< over the steps
};

/// An Euler run of some images; with two branches guided, in one call or one after the other.
Drawn draw_cached_denoiser(GoldenDenoiser& made, const std::string& rule, const std::vector<uint32_t>& pictures,
                           int64_t branches = 1, bool split = false, bool twice = false) {
  Drawn drawn;
  EXPECT_TRUE(made.denoiser->begin(random_batch(made.denoiser->model(), pictures, branches)).ok());
  RuleRequest request;
  request.rule = rule;
  Result<StepCache> cache = StepCache::make(request);
  EXPECT_TRUE(cache.ok()) << cache.status().to_string();
  auto cached = CachedDenoiser::make(*made.denoiser, std::move(*cache), made.blocks);
  EXPECT_TRUE(cached.ok()) << cached.status().to_string();
  if (!cached.ok()) return drawn;
  const int64_t count = std::ssize(pictures), n = made.denoiser->batch().latents.elements();
  std::vector<float>& x = drawn.latents;
  for (int run = 0; run < (twice ? 2 : 1); ++run) {
    x.clear();
    for (const uint32_t picture : pictures) testing::append_normal(x, n, picture);
    std::vector<float> out(static_cast<size_t>(n * count * branches));
    std::vector<int64_t> rows(static_cast<size_t>(count * branches));
    std::iota(rows.begin(), rows.end(), 0);
    for (int64_t step = 0; step < kSteps; ++step) {
      const double sigma = sigma_at(step), next = sigma_at(step + 1);
      const StepPoint at = {step, kSteps, sigma, next, next - sigma};
      const std::span<const int64_t> all = rows;
      const auto evaluate = [&](std::span<const int64_t> some) {
        const Status status = cached->evaluate(some, x, 1000 * sigma, at, out);
        EXPECT_TRUE(status.ok()) << status.to_string();
      };
      if (split) {
        for (int64_t branch = 0; branch < branches; ++branch)
          evaluate(all.subspan(static_cast<size_t>(branch * count), static_cast<size_t>(count)));
      } else {
        evaluate(all);
      }
      drawn.computed_images += cached->computed_images();
      for (size_t i = 0; i < x.size(); ++i) {
        float v = out[i];
        if (branches == 2) v = out[x.size() + i] + 2 * (v - out[x.size() + i]);
        x[i] += static_cast<float>(next - sigma) * v;
      }
    }
  }
  drawn.share = cached->executed_share();
  for (int64_t row = 0; row < count * branches; ++row) {
    const StepCache::Report* report = cached->cache().report(static_cast<uint64_t>(row % count), row / count);
    std::string text;
    if (report != nullptr)
      for (const CacheAction action : report->actions)
        text += action == CacheAction::kCompute ? '#' : action == CacheAction::kSkipMiddle ? '+' : '.';
    drawn.actions.push_back(text);
  }
  return drawn;
}

TEST(CachedDenoiser, WithoutSkipsItIsTheDenoiser) {
  GoldenDenoiser made = make_denoiser("flux_dev", 1);
  ASSERT_TRUE(made.denoiser);
  const Drawn plain = draw_cached_denoiser(made, "none", {1, 2});
  EXPECT_EQ(plain.share, 1);
  EXPECT_EQ(plain.computed_images, 2 * kSteps);
  for (const std::string rule : {"fbcache:threshold=0", "mask:steps=0-11", "redline:budget=12"}) {
    const Drawn same = draw_cached_denoiser(made, rule, {1, 2});
    EXPECT_EQ(same.latents, plain.latents) << rule;
    EXPECT_EQ(same.share, 1) << rule;
  }
}

TEST(CachedDenoiser, ImagesOfABatchRunAsTheyRunAlone) {
  GoldenDenoiser made = make_denoiser("flux_dev", 1);
  ASSERT_TRUE(made.denoiser);
  for (const std::string rule : {"fbcache:threshold=0.55", "dicache:threshold=0.7", "redline:threshold=0.2,min_steps=0",
                                 "easycache:threshold=0.5,warmup=1"}) {
    const std::vector<uint32_t> pictures = {3, 4, 5};
    const Drawn together = draw_cached_denoiser(made, rule, pictures, 2);
    const auto n = static_cast<size_t>(made.denoiser->batch().latents.elements());
    double share = 0;
    for (size_t p = 0; p < pictures.size(); ++p) {
      const Drawn alone = draw_cached_denoiser(made, rule, {pictures[p]}, 2);
      EXPECT_EQ(together.actions[p], alone.actions[0]) << rule << ", image " << p;
      EXPECT_EQ(together.actions[3 + p], alone.actions[1]) << rule << ", image " << p;
      EXPECT_NE(alone.actions[0].find_first_of("+."), std::string::npos) << rule << " never skips";
      EXPECT_NE(alone.actions[0].substr(1).find('#'), std::string::npos) << rule << " never computes";
      const std::vector<float> own(together.latents.begin() + static_cast<int64_t>(p * n),
                                   together.latents.begin() + static_cast<int64_t>((p + 1) * n));
      EXPECT_EQ(own, alone.latents) << rule << ", image " << p;
      share += alone.share / 3;
    }
    EXPECT_NEAR(together.share, share, 1e-9) << rule;
  }
}

TEST(CachedDenoiser, BranchesHaveStatesOfTheirOwn) {
  GoldenDenoiser made = make_denoiser("flux_dev", 1);
  ASSERT_TRUE(made.denoiser);
  for (const std::string rule : {"fbcache:threshold=0.55", "dbcache:threshold=0.55,fn=1,warmup=2", "redline:budget=5",
                                 "taylorseer:interval=3"}) {
    const Drawn batched = draw_cached_denoiser(made, rule, {6, 7}, 2),
                split = draw_cached_denoiser(made, rule, {6, 7}, 2, true);
    EXPECT_EQ(batched.latents, split.latents) << rule;
    EXPECT_EQ(batched.actions, split.actions) << rule;
  }
}

TEST(CachedDenoiser, GuardsAndCapsHold) {
  GoldenDenoiser made = make_denoiser("flux_dev", 1);
  ASSERT_TRUE(made.denoiser);
  EXPECT_EQ(draw_cached_denoiser(made, "fbcache:threshold=10", {1}).actions[0], "#+++++++++++");
  EXPECT_EQ(draw_cached_denoiser(made, "fbcache:threshold=10,first=3,last=1", {1}).actions[0], "###++++++++#");
  EXPECT_EQ(draw_cached_denoiser(made, "fbcache:threshold=10,max_consecutive=2", {1}).actions[0], "#++#++#++#++");
  EXPECT_EQ(draw_cached_denoiser(made, "fbcache:threshold=10,max_cached=4", {1}).actions[0], "#++++#######");
  EXPECT_EQ(draw_cached_denoiser(made, "fbcache:threshold=10,min_steps=13", {1}).actions[0], "############");
  EXPECT_EQ(draw_cached_denoiser(made, "mask:steps=0+4+8,span=output", {1}).actions[0], "#...#...#...");
  const Drawn half = draw_cached_denoiser(made, "redline:steps=0+1+2+4+6+8", {1, 2});
  EXPECT_EQ(half.share, 0.5);
  EXPECT_EQ(half.computed_images, 12);
}

TEST(CachedDenoiser, ANewRunBeginsAnew) {
  GoldenDenoiser made = make_denoiser("flux_dev", 1);
  ASSERT_TRUE(made.denoiser);
  for (const std::string rule : {"fbcache:threshold=0.55", "redline:budget=5", "easycache:threshold=0.5,warmup=1"}) {
    const Drawn once = draw_cached_denoiser(made, rule, {8}),
                again = draw_cached_denoiser(made, rule, {8}, 1, false, true);
    EXPECT_EQ(once.latents, again.latents) << rule;
    EXPECT_EQ(once.actions, again.actions) << rule << ": actions are those of the second run alone";
  }
}

TEST(CachedDenoiser, BlocksMayBeSharedOutAnyhow) {
  for (const std::string network : {"flux_dev", "pixart_sigma", "sd3"}) {
    std::vector<float> whole;
    for (const BlockSplit blocks :
         {BlockSplit(0), BlockSplit(1), BlockSplit(0, 1), BlockSplit(1, 1), BlockSplit(0, 2), BlockSplit(9, 9)}) {
      GoldenDenoiser made = make_denoiser(network, blocks);
      ASSERT_TRUE(made.denoiser);
      ASSERT_TRUE(made.denoiser->begin(random_batch(made.denoiser->model(), {1, 2})).ok());
      std::vector<float> x;
      testing::append_normal(x, 2 * made.denoiser->batch().latents.elements(), 4);
      std::vector<float> out(x.size());
      const std::vector<int64_t> rows = {0, 1};
      const Status status = made.denoiser->evaluate(rows, x, 700, out);
      ASSERT_TRUE(status.ok()) << status.to_string();
      if (whole.empty()) whole = out;
      double most = 0, error = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        most = std::max(most, std::fabs(double{whole[i]}));
        error = std::max(error, std::fabs(double{out[i]} - whole[i]));
      }
      // Both compute these operations in float32, but other graphs may fuse them elsewhere.
      EXPECT_LE(error, 1e-5 * most) << network << ", probe " << blocks.front << ", tail " << blocks.tail;
    }
  }
}

TEST(CachedDenoiser, AStepLikeTheLastNeedsNothingNew) {
  // Whatever span is left out, what was computed at one step stands exactly for a second one that gets the same input.
  for (const std::string network : {"flux_dev", "pixart_sigma", "sd3"})
    for (const BlockSplit blocks : {BlockSplit(0), BlockSplit(1), BlockSplit(1, 1)}) {
      GoldenDenoiser made = make_denoiser(network, blocks);
      ASSERT_TRUE(made.denoiser);
      for (const std::string span : {"middle", "blocks", "output", "residual"}) {
        if (span == "middle" && blocks.front == 0) continue;
        if (span == "blocks" && blocks.tail > 0) continue;
        ASSERT_TRUE(made.denoiser->begin(random_batch(made.denoiser->model(), {1, 2})).ok());
        RuleRequest request;
        request.rule = "mask:steps=0,span=" + span;
        if (blocks.tail > 0 && span == "middle") request.rule = "dbcache:threshold=10,warmup=1,fn=1,bn=1";
        auto cached = CachedDenoiser::make(*made.denoiser, StepCache::make(request).value(), blocks);
        ASSERT_TRUE(cached.ok()) << cached.status().to_string();
        std::vector<float> x;
        testing::append_normal(x, 2 * made.denoiser->batch().latents.elements(), 4);
        std::vector<float> first(x.size()), second(x.size());
        const std::vector<int64_t> rows = {0, 1};
        ASSERT_TRUE(cached->evaluate(rows, x, 900, {0, 5, 0.9, 0.8, -0.1}, first).ok());
        ASSERT_TRUE(cached->evaluate(rows, x, 900, {1, 5, 0.8, 0.7, -0.1}, second).ok());
        EXPECT_EQ(cached->computed_images(), 0);
        EXPECT_LT(cached->executed_share(), 1);
        double most = 0, error = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          most = std::max(most, std::fabs(double{first[i]}));
          error = std::max(error, std::fabs(double{second[i]} - first[i]));
        }
        // base + (value - base) rounds twice in float32; the head passes that on.
        EXPECT_LE(error, 1e-5 * most) << network << ", probe of " << blocks.front << ", tail of " << blocks.tail
                                      << ", span " << span;
      }
    }
}

TEST(CachedDenoiser, TextThatTheTailReadsIsForecastToo) {
  GoldenDenoiser made = make_denoiser("flux_dev", BlockSplit(1, 1));
  ASSERT_TRUE(made.denoiser);
  Denoiser& denoiser = *made.denoiser;
  ASSERT_TRUE(denoiser.begin(random_batch(denoiser.model(), {1})).ok());
  RuleRequest request;
  request.rule = "dbcache:threshold=10,warmup=1,fn=1,bn=1";
  auto cached = CachedDenoiser::make(denoiser, StepCache::make(request).value(), made.blocks);
  ASSERT_TRUE(cached.ok()) << cached.status().to_string();
  const std::vector<int64_t> rows = {0};
  std::vector<float> x, out, added[2];
  testing::append_normal(x, denoiser.batch().latents.elements(), 4);
  out.resize(x.size());
  for (int64_t step = 0; step < 2; ++step) {
    const double sigma = 0.9 - 0.1 * static_cast<double>(step);
    ASSERT_TRUE(cached->evaluate(rows, x, 1000 * sigma, {step, 5, sigma, sigma - 0.1, -0.1}, out).ok());
    EXPECT_EQ(cached->computed_images(), 1 - step);
    const std::span<const float> after = denoiser.state(DenoiserState::kMiddleText, 0).host();
    const std::vector<float> middle(after.begin(), after.end());
    const std::span<const float> before = denoiser.state(DenoiserState::kFrontText, 0).host();
    ASSERT_EQ(middle.size(), before.size());
    ASSERT_FALSE(middle.empty());
    for (size_t i = 0; i < middle.size(); ++i) added[step].push_back(middle[i] - before[i]);
    for (float& value : x) value *= 0.5F;  // the front's text is another one in the second step
  }
  // front + (middle - front) rounds twice in float32.
  for (size_t i = 0; i < added[0].size(); ++i) EXPECT_NEAR(added[0][i], added[1][i], 1e-5) << i;
}

TEST(CachedDenoiser, OnlyWhatARuleReadsIsTaken) {
  const auto reads = [](const std::string& rule) {
    RuleRequest request;
    request.rule = rule;
    const RowReads r = StepCache::make(request).value().reads();
    return fmt::format("{}{}{}{}{}", r.embedded ? "e" : "", r.front_image ? "f" : "", r.modulated ? "m" : "",
                       r.middle_image ? "i" : "", r.text ? "t" : "");
  };
  EXPECT_EQ(reads("none"), "");
  EXPECT_EQ(reads("redline"), "");
  EXPECT_EQ(reads("easycache"), "");
  EXPECT_EQ(reads("fbcache"), "efit");
  EXPECT_EQ(reads("teacache:coefficients=1/0"), "emit");
  EXPECT_EQ(reads("mask:steps=0,span=middle"), "fit");
  EXPECT_EQ(reads("mask:steps=0,span=blocks"), "eit");
}

/// Every rule as it is by default, and with its knob where most steps are skipped.
std::vector<std::string> all_rules() {
  std::vector<std::string> all;
  for (const RuleRow* rule : rules()) {
    all.emplace_back(rule->name);
    const TuningKnob& knob = rule->knob;
    const auto with = [&](const auto& value) {
      all.push_back(fmt::format("{}:{}={}", rule->name, knob.parameter, value));
    };
    switch (knob.kind) {
      case TuningKnob::Kind::kNone: break;
      case TuningKnob::Kind::kThreshold: with(knob.max); break;
      case TuningKnob::Kind::kInteger:
      case TuningKnob::Kind::kBudget: with(4); break;
      case TuningKnob::Kind::kChoice: with(knob.choices.back());
    }
  }
  return all;
}

// A device computes the steps that the CPU computes, its latents differ by no more than float32 does, and the values
// that a part of a network hands to the next stay in the device's memory: nothing but model outputs and sums comes to
// the host.
TEST(CachedDenoiser, EveryRuleOnADevice) {
  if (std::getenv("REDLINE_CPU_ISA")) GTEST_SKIP() << "the same under every instruction set";
  for (const char* network : {"flux_dev", "sd3", "pixart_sigma", "unet_sd15"}) {
    std::map<std::pair<int64_t, int64_t>, std::array<GoldenDenoiser, 2>> opened;  // by front and tail blocks
    int num_run = 0;
    for (const std::string& rule : all_rules()) {
      SCOPED_TRACE(fmt::format("{}, {}", network, rule));
      RuleRequest request;
      request.rule = rule;
      const Result<RulePlan> plan = plan_rule(request);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      const bool has_parts = network != std::string_view("unet_sd15");
      if (!has_parts && (plan->span == SkippedSpan::kMiddle || plan->span == SkippedSpan::kBlocks)) continue;
      std::array<GoldenDenoiser, 2>& both = opened[{plan->front_blocks, plan->tail_blocks}];
      if (!both[0].denoiser) {
        const BlockSplit blocks(plan->front_blocks, plan->tail_blocks);
        both = {make_denoiser(network, blocks), make_denoiser(network, blocks, 8, NetworkMode::kEmulatedF32)};
      }
      ASSERT_TRUE(both[0].denoiser && both[1].denoiser);
      const Drawn want = draw_cached_denoiser(both[0], rule, {1}, 2);
      testing::CountedDevice device(*both[1].runtime);
      const Drawn got = draw_cached_denoiser(both[1], rule, {1}, 2);
      ++num_run;
      EXPECT_EQ(got.actions, want.actions);
      EXPECT_EQ(got.share, want.share);
      ASSERT_EQ(got.latents.size(), want.latents.size());
      float most = 0, error = 0;
      for (size_t i = 0; i < want.latents.size(); ++i) {
        most = std::max(most, std::abs(want.latents[i]));
        error = std::max(error, std::abs(got.latents[i] - want.latents[i]));
      }
      // Twelve steps of float32 in another order, with guidance that multiplies differences by two.
      EXPECT_LE(error, 1e-4F * most);
      const Denoiser& denoiser = *both[1].denoiser;
      const int64_t tokens = denoiser.batch().latents.tokens();
      EXPECT_LE(device.counts().largest_download, denoiser.batch().rows * tokens * denoiser.model().out_channels * 4);
    }
    EXPECT_GE(num_run, 4) << network;
  }
}

TEST(CachedDenoiser, WhatANetworkCannotDoIsSaid) {
  GoldenDenoiser flux = make_denoiser("flux_dev", 1), unet = make_denoiser("unet_sd15", 0);
  ASSERT_TRUE(flux.denoiser && unet.denoiser);
  const auto message = [](GoldenDenoiser& made, const std::string& rule) {
    RuleRequest request;
    request.rule = rule;
    Result<StepCache> cache = StepCache::make(request);
    if (!cache.ok()) return cache.status().to_string();
    auto cached = CachedDenoiser::make(*made.denoiser, std::move(*cache), made.blocks);
    return cached.ok() ? std::string("made") : cached.status().to_string();
  };
  EXPECT_THAT(message(unet, "fbcache"), HasSubstr("not divided into parts; use redline, easycache"));
  EXPECT_EQ(message(unet, "redline:budget=4"), "made");
  EXPECT_EQ(message(unet, "easycache"), "made");
  EXPECT_THAT(message(flux, "dbcache:fn=2"), HasSubstr("open it with front_blocks 2"));
  EXPECT_EQ(message(flux, "dbcache:fn=1"), "made");
  EXPECT_THAT(message(flux, "dbcache:fn=1,bn=1"), HasSubstr("open it with tail_blocks 1"));

  RuleRequest request;
  request.rule = "taylorseer";
  auto cached = CachedDenoiser::make(*flux.denoiser, StepCache::make(request).value(), 1);
  ASSERT_TRUE(cached.ok());
  EXPECT_THAT(cached->warnings(), Contains(HasSubstr("taylorseer needs no block on skipped steps")));
  EXPECT_THAT(cached->warnings(), Contains(HasSubstr("open it with front_blocks 0")));
}

TEST(CachedDenoiser, TeacacheSeesTheModulatedInput) {
  // The probe has no blocks; the statistic of a run is then a number at every step after the first.
  for (const std::string network : {"flux_dev", "pixart_sigma"}) {
    GoldenDenoiser made = make_denoiser(network, 0);
    ASSERT_TRUE(made.denoiser);
    const Drawn drawn = draw_cached_denoiser(made, "teacache:model=identity,threshold=0.7", {1, 2});
    EXPECT_EQ(drawn.actions[0][0], '#') << network;
    EXPECT_EQ(drawn.actions[0].back(), '#') << network;
    EXPECT_NE(drawn.actions[0].find('+'), std::string::npos) << network;
    EXPECT_LT(drawn.share, 1) << network;
  }
}

}  // namespace
}  // namespace redline
