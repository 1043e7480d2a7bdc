// Each published rule against a plain transcription of it: the same decisions, and the same tensors on skipped steps,
// over drifting synthetic runs and a range of thresholds. The transcriptions follow the rules as their papers and
// repositories state them (docs/step_cache.md) and know nothing of the mechanism.
#include <fstream>

#include "cache_trace.h"

namespace redline::testing {
namespace {

double mean_abs(const Tensor& a) {
  double sum = 0;
  for (const float v : a) sum += std::fabs(v);
  return sum / static_cast<double>(a.size());
}
Tensor minus(const Tensor& a, const Tensor& b) {
  Tensor c(a.size());
  for (size_t i = 0; i < a.size(); ++i) c[i] = a[i] - b[i];
  return c;
}
Tensor plus(const Tensor& a, const Tensor& b) {
  Tensor c(a.size());
  for (size_t i = 0; i < a.size(); ++i) c[i] = a[i] + b[i];
  return c;
}
Tensor scaled(const Tensor& a, double factor) {
  Tensor c(a.size());
  for (size_t i = 0; i < a.size(); ++i) c[i] = static_cast<float>(factor * a[i]);
  return c;
}
/// mean |now - before| / mean |before|.
double change(const Tensor& now, const Tensor& before) { return mean_abs(minus(now, before)) / mean_abs(before); }

/// Compares runs; returns the share of skipped steps. `what`: which tensor a skip forecasts.
enum class What { kBody, kBodyAndText, kVelocity };
double expect_same(const std::vector<Outcome>& got, const std::vector<Outcome>& want, What what,
                   const std::string& name) {
  EXPECT_EQ(decisions(got), decisions(want)) << name;
  double skipped = 0;
  for (size_t i = 0; i < got.size() && got[i].computed == want[i].computed; ++i) {
    if (got[i].computed) continue;
    ++skipped;
    const std::string where = fmt::format("{} step {}", name, i);
    if (what == What::kVelocity) {
      expect_near(got[i].model_output, want[i].model_output, where);
    } else {
      expect_near(got[i].middle_image, want[i].middle_image, where);
      if (what == What::kBodyAndText) expect_near(got[i].middle_text, want[i].middle_text, where + " text");
    }
  }
  return skipped / static_cast<double>(got.size());
}

/// Runs a rule over seeds, step counts and thresholds; every threshold list must give both computed and skipped steps.
void compare(const std::string& name, std::vector<double> thresholds, What what,
             const std::function<std::string(double)>& text,
             const std::function<std::vector<Outcome>(const CacheTrace&, double)>& transcription) {
  double skipped = 0, runs = 0;
  for (const double threshold : thresholds)
    for (const int64_t steps : {9, 20, 28, 50})
      for (const uint32_t seed : {1U, 2U, 3U}) {
        const CacheTrace trace = make_trace(steps, seed);
        skipped += expect_same(run_rule(text(threshold), trace), transcription(trace, threshold), what,
                               fmt::format("{} at {} over {} steps, seed {}", name, threshold, steps, seed));
        ++runs;
      }
  EXPECT_GT(skipped / runs, 0.1) << name << " hardly skips: the comparison shows little";
  EXPECT_LT(skipped / runs, 0.9) << name << " hardly computes";
}

TEST(Rules, FbcacheAsTranscribed) {
  compare(
      "fbcache", {0.02, 0.05, 0.1, 0.3}, What::kBodyAndText,
      [](double threshold) { return fmt::format("fbcache:threshold={},warmup=2", threshold); },
      [](const CacheTrace& t, double threshold) {
        std::vector<Outcome> out;
        Tensor reference, residual, text_residual;
        for (int64_t i = 0; i < t.steps; ++i) {
          const Tensor first = minus(t.front_image[i], t.embedded[i]);
          Outcome o;
          o.computed =
              i < 2 || reference.empty() || !(mean_abs(minus(reference, first)) / mean_abs(reference) < threshold);
          if (o.computed) {
            reference = first;
            residual = minus(t.middle_image[i], t.front_image[i]);
            text_residual = minus(t.middle_text[i], t.front_text[i]);
          } else {
            o.middle_image = plus(t.front_image[i], residual);
            o.middle_text = plus(t.front_text[i], text_residual);
          }
          out.push_back(o);
        }
        return out;
      });
}

TEST(Rules, FbcacheThresholdZeroNeverSkips) {
  EXPECT_EQ(decisions(run_rule("fbcache:threshold=0", make_trace(28, 1))), std::string(28, '#'));
}

TEST(Rules, DbcacheAsTranscribed) {
  compare(
      "dbcache", {0.05, 0.1, 0.4, 1.0}, What::kBodyAndText,
      [](double threshold) {
        return fmt::format(
            "dbcache:threshold={},fn=4,warmup=4,warmup_interval=2,max_cached=12,max_consecutive=3,"
            "max_accumulated=2.5",
            threshold);
      },
      [](const CacheTrace& t, double threshold) {
        std::vector<Outcome> out;
        Tensor reference, residual, text_residual;
        std::vector<int64_t> cached;
        int64_t consecutive = 0;
        double accumulated = 0;
        for (int64_t i = 0; i < t.steps; ++i) {
          const Tensor first = minus(t.front_image[i], t.embedded[i]);
          Outcome o;
          o.computed = true;
          if (i < 4 && i % 2 == 0) {
            // warm-up
          } else if (reference.empty()) {
            // nothing to compare with
          } else if (std::ssize(cached) >= 12) {
          } else if (consecutive >= 3) {
            consecutive = 0;
          } else if (accumulated >= 2.5) {
          } else if (threshold >= 1) {
            o.computed = false;
          } else {
            const double d = mean_abs(minus(reference, first)) / mean_abs(reference);
            if (d > 0) accumulated += d;
            o.computed = !(d < threshold);
          }
          if (o.computed) {
            reference = first;
            residual = minus(t.middle_image[i], t.front_image[i]);
            text_residual = minus(t.middle_text[i], t.front_text[i]);
          } else {
            if (cached.empty()) consecutive += 1;
            else if (i - cached.back() == 1) consecutive += consecutive == 0 ? 2 : 1;
            cached.push_back(i);
            o.middle_image = plus(t.front_image[i], residual);
            o.middle_text = plus(t.front_text[i], text_residual);
          }
          out.push_back(o);
        }
        return out;
      });
}

TEST(Rules, DbcacheMaskLimitsWhereItMaySkip) {
  const CacheTrace trace = make_trace(28, 4);
  const std::string fixed = decisions(run_rule("dbcache:mask=medium,policy=static,warmup=0", trace));
  EXPECT_EQ(fixed, "######.##...##...##...##...#");
  const std::string tested = decisions(run_rule("dbcache:mask=medium,warmup=0,threshold=0.03", trace));
  int64_t more = 0;
  for (size_t i = 0; i < fixed.size(); ++i) {
    EXPECT_FALSE(fixed[i] == '#' && tested[i] != '#') << i;
    more += fixed[i] == '.' && tested[i] == '#';
  }
  EXPECT_GT(more, 0) << "the test inside the mask decided nothing";
}

TEST(Rules, TeacacheAsTranscribed) {
  const double c[] = {498.651651, -283.781631, 55.8554382, -3.82021401, 0.264230861};
  compare(
      "teacache", {0.3, 0.6, 1.0, 2.0}, What::kBody,
      [](double threshold) { return fmt::format("teacache:threshold={}", threshold); },
      [&](const CacheTrace& t, double threshold) {
        std::vector<Outcome> out;
        Tensor before, residual;
        double sum = 0;
        for (int64_t i = 0; i < t.steps; ++i) {
          Outcome o;
          if (i == 0 || i == t.steps - 1) {
            o.computed = true;
            sum = 0;
          } else {
            const double d = change(t.modulated[i], before);
            sum += c[0] * d * d * d * d + c[1] * d * d * d + c[2] * d * d + c[3] * d + c[4];
            o.computed = !(sum < threshold);
            if (o.computed) sum = 0;
          }
          before = t.modulated[i];
          if (o.computed) residual = minus(t.middle_image[i], t.embedded[i]);
          else o.middle_image = plus(t.embedded[i], residual);
          out.push_back(o);
        }
        return out;
      });
}

TEST(Rules, EasycacheAsTranscribed) {
  compare(
      "easycache", {0.05, 0.1, 0.3, 0.8}, What::kVelocity,
      [](double threshold) { return fmt::format("easycache:threshold={},warmup=3", threshold); },
      [](const CacheTrace& t, double threshold) {
        std::vector<Outcome> out;
        Tensor x_before, x_last, v_last, difference;
        double k = -1, sum = 0;
        for (int64_t i = 0; i < t.steps; ++i) {
          const Tensor &x = t.latents[i], &v = t.model_output[i];
          Outcome o;
          if (i < 3 || i >= t.steps - 1) {
            o.computed = true;
            sum = 0;
          } else if (k < 0) {
            o.computed = true;
          } else {
            sum += k * (mean_abs(minus(x, x_before)) / mean_abs(v_last));
            o.computed = !(sum < threshold);
            if (o.computed) sum = 0;
          }
          x_before = x;
          if (o.computed) {
            if (!v_last.empty()) k = mean_abs(minus(v, v_last)) / mean_abs(minus(x, x_last));
            difference = minus(v, x);
            v_last = v;
            x_last = x;
          } else {
            o.model_output = plus(x, difference);
          }
          out.push_back(o);
        }
        return out;
      });
}

TEST(Rules, TaylorseerAsTranscribed) {
  // The factor list of a tensor, updated in place at each full step.
  for (const int64_t order : {0, 1, 2, 3})
    compare(
        fmt::format("taylorseer order {}", order), {2, 3, 6}, What::kBody,
        [&](double interval) { return fmt::format("taylorseer:interval={},order={},warmup=3", interval, order); },
        [&](const CacheTrace& t, double interval) {
          std::vector<Outcome> out;
          std::vector<Tensor> factors;
          int64_t counter = 0, last = 0;
          for (int64_t i = 0; i < t.steps; ++i) {
            Outcome o;
            o.computed = i < 3 || counter == static_cast<int64_t>(interval) - 1;
            if (o.computed) {
              counter = 0;
              std::vector<Tensor> next = {minus(t.middle_image[i], t.embedded[i])};
              for (int64_t n = 0; n < order; ++n) {
                if (n >= std::ssize(factors) || i <= 1) break;
                next.push_back(scaled(minus(next[n], factors[n]), 1.0 / static_cast<double>(i - last)));
              }
              factors = next;
              last = i;
            } else {
              ++counter;
              Tensor sum = t.embedded[i];
              double term = 1;
              for (size_t n = 0; n < factors.size(); ++n) {
                if (n > 0) term *= static_cast<double>(i - last) / static_cast<double>(n);
                sum = plus(sum, scaled(factors[n], term));
              }
              o.middle_image = sum;
            }
            out.push_back(o);
          }
          return out;
        });
}

TEST(Rules, MagcacheAsTranscribed) {
  std::vector<double> flux = {1.0,     1.21094, 1.11719, 1.07812, 1.0625,  1.03906, 1.03125, 1.03906, 1.02344, 1.03125,
                              1.02344, 0.98047, 1.01562, 1.00781, 1.0,     1.00781, 1.0,     1.00781, 1.0,     1.0,
                              0.99609, 0.99609, 0.98047, 0.98828, 0.96484, 0.95703, 0.93359, 0.89062};
  compare(
      "magcache", {0.02, 0.06, 0.24}, What::kBody,
      [](double threshold) { return fmt::format("magcache:threshold={},max_skip=4,retention=0.1", threshold); },
      [&](const CacheTrace& t, double threshold) {
        std::vector<Outcome> out;
        Tensor residual;
        double ratio = 1, error = 0;
        int64_t skipped = 0;
        for (int64_t i = 0; i < t.steps; ++i) {
          // Nearest index, ties to even: the scale of these step counts meets none.
          const double at = static_cast<double>(i) * 27.0 / static_cast<double>(t.steps - 1);
          const double g = flux[static_cast<size_t>(std::nearbyint(at))];
          Outcome o;
          o.computed = true;
          if (i >= static_cast<int64_t>(0.1 * static_cast<double>(t.steps) + 0.5)) {
            ratio *= g;
            ++skipped;
            error += std::fabs(1.0 - ratio);
            if (!residual.empty() && error <= threshold && skipped <= 4) {
              o.computed = false;
            } else {
              ratio = 1;
              error = 0;
              skipped = 0;
            }
          }
          if (o.computed) residual = minus(t.middle_image[i], t.embedded[i]);
          else o.middle_image = plus(t.embedded[i], residual);
          out.push_back(o);
        }
        return out;
      });
}

TEST(Rules, MagcacheTakesRatiosOfTheModel) {
  const std::string rule = "magcache:threshold=0.001,retention=0,ratios=";
  // Stretched to 9 steps the ratio is 1.5 at steps 2 and 3; reuse is free elsewhere, three skips in a row are the cap.
  const std::string made = decisions(run_rule(rule + "1.0/1.5/1.0/1", make_trace(9, 1)));
  EXPECT_EQ(decisions(run_rule(rule + "1", make_trace(9, 1))), "#...#...#");
  EXPECT_EQ(made, "#.##...#.");
}

TEST(Rules, DicacheAsTranscribed) {
  for (const bool minus_input : {false, true})
    compare(
        minus_input ? "dicache minus" : "dicache y", {0.02, 0.06, 0.2, 0.6}, What::kBody,
        [&](double threshold) {
          return fmt::format("dicache:threshold={},error={},retention=0.1", threshold, minus_input ? "minus" : "y");
        },
        [&](const CacheTrace& t, double threshold) {
          std::vector<Outcome> out;
          Tensor input_before, probe_before;
          std::vector<Tensor> residuals, probe_residuals;
          double sum = 0;
          for (int64_t i = 0; i < t.steps; ++i) {
            const Tensor &x = t.embedded[i], &y = t.front_image[i];
            Outcome o;
            if (i <= static_cast<int64_t>(0.1 * static_cast<double>(t.steps)) || i == t.steps - 1) {
              o.computed = true;
              sum = 0;
            } else {
              const double dx = change(x, input_before), dy = change(y, probe_before);
              sum += minus_input ? std::fabs(dy - dx) : dy;
              o.computed = !(sum < threshold);
              if (o.computed) sum = 0;
            }
            input_before = x;
            probe_before = y;
            const Tensor probe_residual = minus(y, x);
            if (o.computed) {
              residuals.push_back(minus(t.middle_image[i], x));
              probe_residuals.push_back(probe_residual);
            } else if (residuals.size() < 2) {
              o.middle_image = plus(x, residuals.back());
            } else {
              const size_t b = residuals.size() - 1, a = b - 1;
              const double gamma = std::clamp(mean_abs(minus(probe_residual, probe_residuals[a])) /
                                                  mean_abs(minus(probe_residuals[b], probe_residuals[a])),
                                              1.0, 1.5);
              o.middle_image = plus(x, plus(residuals[a], scaled(minus(residuals[b], residuals[a]), gamma)));
            }
            out.push_back(o);
          }
          return out;
        });
}

TEST(Rules, MasksFollowTheRunLengths) {
  const auto text_of = [](const std::string& policy, int64_t steps) {
    Result<std::vector<uint8_t>> mask = policy_mask(policy, steps);
    if (!mask.ok()) return mask.status().to_string();
    std::string text;
    for (const uint8_t m : *mask) text += m != 0 ? '1' : '0';
    return text;
  };
  // Values of cache-dit's steps_mask (caching/cache_interface.py), made by running it.
  std::ifstream file(REDLINE_SOURCE_DIR "/tests/diffusion/step_cache/policy_masks.txt");
  ASSERT_TRUE(file.good());
  std::string policy, want;
  int64_t steps = 0, lines = 0;
  while (file >> policy >> steps >> want) {
    EXPECT_EQ(text_of(policy, steps), want) << policy << " " << steps;
    ++lines;
  }
  EXPECT_GE(lines, 100);
  EXPECT_NE(text_of("medium", 5).find("at least 8"), std::string::npos);
  EXPECT_NE(text_of("quick", 28).find("slow, medium, fast, ultra"), std::string::npos);
}

// As a list, the parts would be 16 GB of numbers.
TEST(Rules, StepsThatManyPartsNameAreOneList) {
  RuleRequest request;
  request.rule = "mask:steps=5-3";
  for (int i = 0; i < 20'000; ++i) request.rule += "+0-99999";
  EXPECT_TRUE(plan_rule(request).ok());
  request.rule += "+100000";
  EXPECT_FALSE(plan_rule(request).ok());
}

TEST(Rules, MaskSkipsEachSpan) {
  const CacheTrace t = make_trace(12, 7);
  const auto middle = run_rule("mask:steps=0-2+5,span=middle", t), blocks = run_rule("mask:steps=0-2+5,span=blocks", t);
  const auto output = run_rule("mask:steps=0-2+5,span=output", t),
             residual = run_rule("mask:steps=0-2+5,span=residual", t);
  for (const auto* run : {&middle, &blocks, &output, &residual}) EXPECT_EQ(decisions(*run), "###..#......");
  for (int64_t i = 6; i < 12; ++i) {
    expect_near(middle[i].middle_image, plus(t.front_image[i], minus(t.middle_image[5], t.front_image[5])), "middle");
    expect_near(middle[i].middle_text, plus(t.front_text[i], minus(t.middle_text[5], t.front_text[5])), "text");
    expect_near(blocks[i].middle_image, plus(t.embedded[i], minus(t.middle_image[5], t.embedded[5])), "blocks");
    expect_near(output[i].model_output, t.model_output[5], "output");
    expect_near(residual[i].model_output, plus(t.latents[i], minus(t.model_output[5], t.latents[5])), "residual");
  }
}

}  // namespace
}  // namespace redline::testing
