// The mechanism: state by request and branch, what resets it, caps, error correction, rules as text.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "cache_trace.h"

namespace redline::testing {
namespace {

using ::testing::HasSubstr;

RuleRequest asks(const std::string& rule) {
  RuleRequest request;
  request.rule = rule;
  return request;
}

TEST(StepCache, RequestsOfOneBatchDecideForThemselves) {
  // Requests that begin at different times, with different numbers of steps, in shuffled rows: each has the run that it
  // has alone, to the bit.
  for (const std::string rule : {"fbcache:threshold=0.1", "easycache:threshold=0.2,warmup=2", "dicache:threshold=0.2",
                                 "auto", "redline:budget=7", "dbcache:threshold=0.2,fn=1,warmup=2,forecast=foca"}) {
    std::vector<CacheTrace> traces;
    std::vector<std::vector<Outcome>> alone, together;
    for (uint32_t r = 0; r < 4; ++r) {
      traces.push_back(make_trace(12 + 5 * r, 20 + r));
      alone.push_back(run_rule(rule, traces.back()));
      together.emplace_back(traces.back().steps);
    }
    Result<StepCache> cache = StepCache::make(asks(rule));
    ASSERT_TRUE(cache.ok());
    std::mt19937 random(3);
    for (int64_t tick = 0; tick < 60; ++tick) {
      std::vector<size_t> in_flight;
      for (size_t r = 0; r < traces.size(); ++r) {
        const int64_t step = tick - 3 * static_cast<int64_t>(r);
        if (step >= 0 && step < traces[r].steps) in_flight.push_back(r);
      }
      std::shuffle(in_flight.begin(), in_flight.end(), random);
      std::vector<CacheRow> rows;
      std::vector<const CacheTrace*> of;
      std::vector<Outcome*> outcomes;
      for (const size_t r : in_flight) {
        const int64_t step = tick - 3 * static_cast<int64_t>(r);
        outcomes.push_back(&together[r][step]);
        of.push_back(&traces[r]);
        rows.push_back(trace_row(traces[r], step, *outcomes.back(), r));
      }
      run_step(*cache, rows, of, outcomes);
    }
    for (size_t r = 0; r < traces.size(); ++r) {
      EXPECT_EQ(decisions(together[r]), decisions(alone[r])) << rule << " request " << r;
      EXPECT_NE(decisions(alone[r]).find('.'), std::string::npos) << rule << " never skips";
      for (size_t i = 0; i < alone[r].size(); ++i) {
        EXPECT_EQ(together[r][i].middle_image, alone[r][i].middle_image);
        EXPECT_EQ(together[r][i].model_output, alone[r][i].model_output);
      }
    }
  }
}

/// Both branches of one request; `split`: one call after the other.
std::pair<std::string, std::string> run_branches(const std::string& rule, const CacheTrace& first,
                                                 const CacheTrace& second, bool split) {
  Result<StepCache> cache = StepCache::make(asks(rule));
  EXPECT_TRUE(cache.ok()) << cache.status().to_string();
  std::vector<Outcome> a(first.steps), b(first.steps);
  for (int64_t step = 0; step < first.steps; ++step) {
    // The unconditional row comes first: order within a call does not matter.
    std::vector<CacheRow> rows = {trace_row(second, step, b[step], 5, 1), trace_row(first, step, a[step], 5, 0)};
    if (!split) {
      run_step(*cache, rows, {&second, &first}, {&b[step], &a[step]});
    } else {
      std::vector<CacheRow> one = {rows[1]}, other = {rows[0]};
      run_step(*cache, one, {&first}, {&a[step]});
      run_step(*cache, other, {&second}, {&b[step]});
    }
  }
  return {decisions(a), decisions(b)};
}

TEST(StepCache, BranchesAreKeptApartOrFollow) {
  const CacheTrace first = make_trace(28, 1), second = make_trace(28, 2);
  const std::string rule = "fbcache:threshold=0.1", of_first = decisions(run_rule(rule, first)),
                    of_second = decisions(run_rule(rule, second));
  ASSERT_NE(of_first, of_second);
  for (const bool split : {false, true}) {
    const auto apart = run_branches(rule, first, second, split);
    EXPECT_EQ(apart.first, of_first);
    EXPECT_EQ(apart.second, of_second);
    const auto follows = run_branches(rule + ",share_decision=1", first, second, split);
    EXPECT_EQ(follows.first, of_first);
    EXPECT_EQ(follows.second, of_first);
  }
}

TEST(StepCache, DriftOfBothBranchesDecidesTogether) {
  // The second branch moves ten times as fast: together they compute more than the first alone.
  const CacheTrace slow = make_trace(28, 1);
  CacheTrace fast = slow;
  for (int64_t i = 0; i < fast.steps; ++i)
    for (size_t k = 0; k < fast.model_output[i].size(); ++k)
      fast.model_output[i][k] = slow.model_output[27][k] + 10 * (slow.model_output[i][k] - slow.model_output[27][k]);
  const auto count = [](const std::string& s) { return std::count(s.begin(), s.end(), '#'); };
  const auto same = run_branches("redline:threshold=0.05", slow, slow, false);
  const auto mixed = run_branches("redline:threshold=0.05", slow, fast, false);
  EXPECT_EQ(same.first, decisions(run_rule("redline:threshold=0.05", slow)));
  EXPECT_EQ(mixed.first, mixed.second);
  EXPECT_GT(count(mixed.first), count(same.first));
}

TEST(StepCache, BeginsAnewWhenTheRunChanges) {
  const CacheTrace trace = make_trace(20, 9), longer = make_trace(24, 9), larger = make_trace(20, 9, 104);
  const std::string rule = "mask:steps=0,span=output";
  // After ten steps of `trace`, what makes the next step (which the mask skips) computed, and what does not.
  const auto next_is_computed = [&](const std::function<void(CacheRow&)>& change, const CacheTrace& of, int64_t step) {
    Result<StepCache> cache = StepCache::make(asks(rule));
    std::vector<Outcome> out(30);
    for (int64_t i = 0; i < 10; ++i) {
      std::vector<CacheRow> rows = {trace_row(trace, i, out[i])};
      run_step(*cache, rows, {&trace}, {&out[i]});
      EXPECT_EQ(out[i].computed, i == 0);
    }
    std::vector<CacheRow> rows = {trace_row(of, step, out[20])};
    change(rows[0]);
    run_step(*cache, rows, {&of}, {&out[20]});
    return out[20].computed;
  };
  const auto nothing = [](CacheRow&) {};
  EXPECT_FALSE(next_is_computed(nothing, trace, 10));
  EXPECT_TRUE(next_is_computed(nothing, trace, 0)) << "a new image";
  EXPECT_TRUE(next_is_computed(nothing, trace, 7)) << "an earlier step";
  EXPECT_TRUE(next_is_computed(nothing, trace, 12)) << "a step was left out";
  EXPECT_TRUE(next_is_computed(nothing, longer, 10)) << "another number of steps";
  EXPECT_TRUE(next_is_computed(nothing, larger, 10)) << "another size";
  EXPECT_TRUE(next_is_computed([](CacheRow& row) { row.at.step_size = 0; }, trace, 10)) << "another solver";
  EXPECT_TRUE(next_is_computed([](CacheRow& row) { row.at.sigma = 0.99; }, trace, 10)) << "noise rises";
  EXPECT_TRUE(next_is_computed([](CacheRow& row) { row.request = 1; }, trace, 10)) << "another request";
  EXPECT_TRUE(next_is_computed([](CacheRow& row) { row.branch = 1; }, trace, 10)) << "another branch";

  Result<StepCache> cache = StepCache::make(asks(rule));
  std::vector<Outcome> out(2);
  std::vector<CacheRow> rows = {trace_row(trace, 0, out[0])};
  run_step(*cache, rows, {&trace}, {&out[0]});
  EXPECT_GT(cache->bytes(), 0);
  cache->forget(0);
  EXPECT_EQ(cache->bytes(), 0);
  EXPECT_EQ(cache->report(0, 0), nullptr);
  rows = {trace_row(trace, 1, out[1])};
  run_step(*cache, rows, {&trace}, {&out[1]});
  EXPECT_TRUE(out[1].computed);
}

TEST(StepCache, GuardsAndCaps) {
  const CacheTrace trace = make_trace(20, 3);
  EXPECT_EQ(decisions(run_rule("mask:steps=0,first=3", trace)), "###.................");
  EXPECT_EQ(decisions(run_rule("mask:steps=0,last=1", trace)), "#..................#");
  EXPECT_EQ(decisions(run_rule("mask:steps=0,max_consecutive=4", trace)), "#....#....#....#....");
  EXPECT_EQ(decisions(run_rule("mask:steps=0,max_cached=6", trace)), "#......#############");
  EXPECT_EQ(decisions(run_rule("none", trace)), std::string(20, '#'));
  // Threshold rules of ours rest below eight steps; masks do not.
  EXPECT_EQ(decisions(run_rule("auto:threshold=50", make_trace(7, 3))), std::string(7, '#'));
  EXPECT_NE(decisions(run_rule("auto:threshold=50", make_trace(8, 3))), std::string(8, '#'));
  EXPECT_EQ(decisions(run_rule("redline:budget=3", make_trace(7, 3))).size(), 7U);
  EXPECT_NE(decisions(run_rule("redline:budget=3", make_trace(7, 3))), std::string(7, '#'));
  EXPECT_EQ(decisions(run_rule("fbcache:threshold=90,min_steps=21", trace)), std::string(20, '#'));
}

TEST(StepCache, NotANumberComputesAndIsReported) {
  CacheTrace trace = make_trace(12, 3);
  Result<StepCache> cache = StepCache::make(asks("fbcache:threshold=90"));
  trace.front_image[5][3] = std::numeric_limits<float>::quiet_NaN();
  std::vector<Outcome> out(12);
  for (int64_t i = 0; i < 12; ++i) {
    std::vector<CacheRow> rows = {trace_row(trace, i, out[i])};
    run_step(*cache, rows, {&trace}, {&out[i]});
  }
  // Step 5 is computed and becomes the reference, so step 6 has nothing to measure against either.
  EXPECT_EQ(decisions(out), "#....##.....");
  const StepCache::Report* report = cache->report(0, 0);
  ASSERT_NE(report, nullptr);
  EXPECT_EQ(report->num_not_finite, 2);
  EXPECT_EQ(report->actions.size(), 12U);
  EXPECT_TRUE(std::isnan(report->statistics[5]));
  EXPECT_GT(report->statistics[4], 0);
  EXPECT_EQ(report->actions[4], CacheAction::kSkipMiddle);
}

TEST(StepCache, ErrorCorrectionPutsTheLatentsOnTheLine) {
  // Euler over the velocities that come out: at each computed step the latents are where the line between computed
  // velocities, as functions of u, would have led. Exact but for rounding, whatever forecast was used.
  const CacheTrace trace = make_trace(24, 12);
  for (const std::string forecast : {"reuse", "taylor2", "measured", "sigma1"}) {
    const auto out = run_rule("mask:steps=0+1+5+6+11+17+23,span=output,correct_errors=1,forecast=" + forecast, trace);
    const std::vector<int64_t> computed = {0, 1, 5, 6, 11, 17, 23};
    const size_t n = trace.model_output[0].size();
    std::vector<double> x(n), line(n);
    for (int64_t i = 0, next = 0; i < 24; ++i) {
      const double size = trace.sigma[i + 1] - trace.sigma[i];
      while (next + 1 < std::ssize(computed) && computed[next + 1] <= i) ++next;
      const int64_t b = computed[next], c = computed[std::min<int64_t>(next + 1, std::ssize(computed) - 1)];
      const double u = u_of_sigma(trace.sigma[i]), ub = u_of_sigma(trace.sigma[b]), uc = u_of_sigma(trace.sigma[c]),
                   t = c == b ? 0 : (u - ub) / (uc - ub);
      for (size_t k = 0; k < n; ++k) {
        x[k] += size * out[i].model_output[k];
        line[k] += size * (trace.model_output[b][k] + t * (trace.model_output[c][k] - trace.model_output[b][k]));
      }
      if (!out[i].computed) continue;
      for (size_t k = 0; k < n; ++k) ASSERT_NEAR(x[k], line[k], 2e-5) << forecast << " step " << i;
    }
  }
}

TEST(StepCache, NoErrorCorrectionWithoutStepSizes) {
  const CacheTrace trace = make_trace(12, 12);
  Result<StepCache> cache = StepCache::make(asks("mask:steps=0+5,span=output,correct_errors=1"));
  std::vector<Outcome> out(12);
  for (int64_t i = 0; i < 12; ++i) {
    std::vector<CacheRow> rows = {trace_row(trace, i, out[i])};
    rows[0].at.step_size = 0;
    run_step(*cache, rows, {&trace}, {&out[i]});
  }
  EXPECT_EQ(out[5].model_output, trace.model_output[5]);
}

TEST(StepCache, BudgetTakesTheCalibratedMaskElseThePowerLaw) {
  const CacheTrace trace = make_trace(28, 3);
  RuleRequest request;
  request.steps_budget = 6;
  const std::string plain = decisions(run_rule(request, trace));
  EXPECT_EQ(std::count(plain.begin(), plain.end(), '#'), 6);
  request.masks = {{28, {0, 1, 4, 9, 15, 22}}, {28, {0, 9}}, {20, {0, 1, 2, 3, 4, 5}}};
  EXPECT_EQ(decisions(run_rule(request, trace)), "##..#....#.....#......#.....");
  for (const char* rule : {"mask", "mask:span=output", "redline"}) {
    request.rule = rule;
    EXPECT_EQ(decisions(run_rule(request, trace)), "##..#....#.....#......#.....") << rule;
  }
  request.steps_budget = 0;
  for (const char* rule : {"mask:budget=6", "redline:budget=6"}) {
    request.rule = rule;
    EXPECT_EQ(decisions(run_rule(request, trace)), "##..#....#.....#......#.....") << rule;
    EXPECT_EQ(plan_rule(request)->budget, 6) << rule;
  }
  request.rule = "mask:budget=6,steps=0+3";
  EXPECT_THAT(plan_rule(request).status().message(), HasSubstr("exclude each other"));
  request.rule = "";
  request.steps_budget = 7;
  const std::string other = decisions(run_rule(request, trace));
  EXPECT_EQ(std::count(other.begin(), other.end(), '#'), 7) << other;
}

TEST(StepCache, PowerMasksHaveTheirBudget) {
  for (int64_t steps = 1; steps <= 60; ++steps)
    for (int64_t budget = 1; budget <= steps; ++budget) {
      const std::vector<uint8_t> mask = power_mask(steps, budget);
      ASSERT_EQ(std::ssize(mask), steps);
      ASSERT_EQ(std::count(mask.begin(), mask.end(), 1), budget) << steps << " " << budget;
      ASSERT_EQ(mask[0], 1);
    }
  EXPECT_EQ(power_mask(28, 99), std::vector<uint8_t>(28, 1)) << "a budget beyond the steps computes them all";
}

TEST(StepCache, QualitySetsTheThreshold) {
  RuleRequest request = asks("fbcache");
  request.quality = 0.5;
  EXPECT_DOUBLE_EQ(plan_rule(request)->threshold, 0.08);
  request.quality = 1;
  EXPECT_DOUBLE_EQ(plan_rule(request)->threshold, 0);
  request.quality = 0;
  EXPECT_DOUBLE_EQ(plan_rule(request)->threshold, 0.16);
  EXPECT_THAT(plan_rule(request)->description, HasSubstr("fbcache:threshold=0.16"));
  request.rule = "";
  request.quality = 1;
  EXPECT_EQ(decisions(run_rule(request, make_trace(20, 1))), std::string(20, '#'));
}

TEST(StepCache, RulesAsTextSayWhatIsWrong) {
  const auto message = [](const std::string& rule, double quality = -1, int64_t budget = 0) {
    RuleRequest request;
    request.rule = rule;
    request.quality = quality;
    request.steps_budget = budget;
    const Result<RulePlan> plan = plan_rule(request);
    return plan.ok() ? std::string("accepted") : plan.status().to_string();
  };
  EXPECT_THAT(
      message("teecache"),
      HasSubstr("invalid_argument: step cache: no rule is called \"teecache\" (the nearest is teacache); there are"));
  EXPECT_THAT(message("fbcache:treshold=1"),
              HasSubstr("fbcache has no parameter \"treshold\"; it takes threshold, warmup"));
  EXPECT_THAT(message("fbcache:threshold"), HasSubstr("threshold needs a value: threshold=0.08"));
  EXPECT_THAT(message("fbcache:threshold=soon"), HasSubstr("\"soon\" is not a number"));
  EXPECT_THAT(message("fbcache:threshold=nan"), HasSubstr("\"nan\" is not a number"));
  EXPECT_THAT(message("fbcache:threshold=-1"), HasSubstr("-1 is outside 0 .. 100"));
  EXPECT_THAT(message("fbcache:blocks=1.5"), HasSubstr("1.5 is not a whole number"));
  EXPECT_THAT(message("fbcache:forecast=magic"), HasSubstr("no forecaster is called \"magic\"; there are dmd"));
  EXPECT_THAT(message("easycache:forecast=gamma"), HasSubstr("does not run them on skipped steps"));
  EXPECT_THAT(message("teacache:model=sdxl"), HasSubstr("no polynomial for \"sdxl\"; there are flux"));
  EXPECT_THAT(message("mask:steps=3-x"), HasSubstr("write them as 0-3+7+9"));
  EXPECT_THAT(message("mask:span=all"), HasSubstr("expected middle, blocks, output or residual"));
  EXPECT_THAT(message("mask:policy=quick"), HasSubstr("slow, medium, fast, ultra"));
  EXPECT_THAT(message("dicache:error=z"), HasSubstr("it can be y or minus"));
  EXPECT_THAT(message("dbcache:policy=soft"), HasSubstr("dynamic or static"));
  EXPECT_THAT(message("auto", 0.5, 8), HasSubstr("exclude each other"));
  EXPECT_THAT(message("auto", 1.5), HasSubstr("outside 0 .. 1"));
  EXPECT_THAT(message("mask", 0.5), HasSubstr("no threshold"));
  EXPECT_THAT(message("fbcache:threshold=1", 0.5), HasSubstr("exclude each other"));
  EXPECT_THAT(message("fbcache", -1, 8), HasSubstr("these rules do: mask, redline"));
  for (const RuleRow* rule : rules()) {
    EXPECT_EQ(message(rule->name), "accepted");
    EXPECT_THAT(rules_help(), HasSubstr(rule->name));
  }
  EXPECT_EQ(message(""), "accepted");
  EXPECT_EQ(message("auto"), "accepted");
  EXPECT_EQ(plan_rule(asks(""))->decision, Decision::kNever);
}

TEST(StepCache, MissingSpansAreNamed) {
  const CacheTrace trace = make_trace(12, 1);
  const auto message = [&](const std::string& rule, const std::function<void(CacheRow&)>& harm) {
    Result<StepCache> cache = StepCache::make(asks(rule));
    Outcome out;
    std::vector<CacheRow> rows = {trace_row(trace, 0, out)};
    rows[0].embedded = trace.embedded[0];
    rows[0].front_image = trace.front_image[0];
    rows[0].front_text = trace.front_text[0];
    rows[0].modulated = trace.modulated[0];
    harm(rows[0]);
    for (const auto part : {&StepCache::before, &StepCache::after_front, &StepCache::after_tail})
      if (const Status status = (*cache.*part)(rows); !status.ok()) return status.message();
    return std::string("accepted");
  };
  EXPECT_EQ(message("fbcache", [](CacheRow&) {}), "accepted");
  EXPECT_THAT(message("fbcache", [](CacheRow& row) { row.embedded = {}; }), HasSubstr("embedded image tokens"));
  EXPECT_THAT(message("fbcache", [](CacheRow& row) { row.front_image = row.front_image.host().first(3); }),
              HasSubstr("after the front"));
  EXPECT_THAT(message("fbcache", [](CacheRow& row) { row.middle_image = {}; }), HasSubstr("output of the middle"));
  EXPECT_THAT(message("teacache", [](CacheRow& row) { row.modulated = {}; }), HasSubstr("modulated input"));
  EXPECT_THAT(message("easycache", [](CacheRow& row) { row.latents = row.latents.first(1); }), HasSubstr("latents"));
  EXPECT_THAT(message("redline", [](CacheRow& row) { row.model_output = {}; }), HasSubstr("model output"));
}

}  // namespace
}  // namespace redline::testing
