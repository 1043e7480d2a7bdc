// Synthetic runs for tests of the step cache: tensors that drift over the steps, smoothly with some noise, so that
// rules of every kind both compute and skip.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "diffusion/step_cache.h"

namespace redline::testing {

using Tensor = std::vector<float>;

/// The values that the parts of a network would give at each step, whatever the cache decides: rules are compared on
/// the same inputs.
struct CacheTrace {
  int64_t steps = 0;
  std::vector<double> sigma;  ///< [steps + 1]
  std::vector<Tensor> latents, embedded, front_image, front_text, modulated, middle_image, middle_text,
      model_output;  ///< [steps]
};

inline CacheTrace make_trace(int64_t steps, uint32_t seed, int64_t elements = 96, int64_t text_elements = 32) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  CacheTrace trace;
  trace.steps = steps;
  for (int64_t i = 0; i <= steps; ++i) {
    const double even = 1 - static_cast<double>(i) / static_cast<double>(steps);
    trace.sigma.push_back(2 * even / (1 + even));
  }
  // Each tensor: base + slope u + bend u^2 + a little noise, u = step / steps; a fast start as under guidance.
  const auto drift = [&](int64_t n, float rate) {
    Tensor base(n), slope(n), bend(n);
    for (auto* t : {&base, &slope, &bend})
      for (float& v : *t) v = normal(random);
    std::vector<Tensor> values;
    for (int64_t i = 0; i < steps; ++i) {
      const float u = static_cast<float>(i) / static_cast<float>(steps), fast = std::exp(-8 * u);
      Tensor value(n);
      for (int64_t k = 0; k < n; ++k)
        value[k] = base[k] + rate * (slope[k] * u + bend[k] * (u * u + fast)) + 0.002F * normal(random);
      values.push_back(std::move(value));
    }
    return values;
  };
  trace.latents = drift(elements, 1.0F);
  trace.embedded = drift(elements, 0.8F);
  trace.modulated = drift(elements, 0.7F);
  trace.model_output = drift(elements, 0.9F);
  trace.front_image = drift(elements, 0.6F);
  trace.front_text = drift(text_elements, 0.3F);
  trace.middle_image = drift(elements, 1.2F);
  trace.middle_text = drift(text_elements, 0.5F);
  return trace;
}

/// The result of one step: computed or not, and what the next part of the network, or the solver, is given.
struct Outcome {
  bool computed = false;
  Tensor middle_image, middle_text, model_output;
};

/// A row of `trace` at `step`, its outputs in `outcome`.
inline CacheRow trace_row(const CacheTrace& trace, int64_t step, Outcome& outcome, uint64_t request = 0,
                          int64_t branch = 0) {
  outcome.middle_image.assign(trace.middle_image[step].size(), 0);
  outcome.middle_text.assign(trace.middle_text[step].size(), 0);
  outcome.model_output.assign(trace.model_output[step].size(), 0);
  CacheRow row;
  row.request = request;
  row.branch = branch;
  row.at = {step, trace.steps, trace.sigma[step], trace.sigma[step + 1], trace.sigma[step + 1] - trace.sigma[step]};
  row.latents = trace.latents[step];
  row.model_output = outcome.model_output;
  row.middle_image = outcome.middle_image;
  row.middle_text = outcome.middle_text;
  return row;
}

/// One step of several rows as a pipeline makes it; row r runs traces[r] at steps[r].
inline void run_step(StepCache& cache, std::vector<CacheRow>& rows, const std::vector<const CacheTrace*>& traces,
                     std::vector<Outcome*> outcomes) {
  Status status = cache.before(rows);
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].action != CacheAction::kRunFront) continue;
    const CacheTrace& t = *traces[r];
    const int64_t step = rows[r].at.step;
    rows[r].embedded = t.embedded[step];
    rows[r].front_image = t.front_image[step];
    rows[r].front_text = t.front_text[step];
    if (cache.reads().modulated) rows[r].modulated = t.modulated[step];
  }
  status = cache.after_front(rows);
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (size_t r = 0; r < rows.size(); ++r) {
    const CacheTrace& t = *traces[r];
    const int64_t step = rows[r].at.step;
    outcomes[r]->computed = rows[r].action == CacheAction::kCompute;
    if (rows[r].action != CacheAction::kCompute) continue;
    std::copy(t.middle_image[step].begin(), t.middle_image[step].end(), rows[r].middle_image.host().begin());
    std::copy(t.middle_text[step].begin(), t.middle_text[step].end(), rows[r].middle_text.host().begin());
    std::copy(t.model_output[step].begin(), t.model_output[step].end(), rows[r].model_output.begin());
  }
  status = cache.after_tail(rows);
  ASSERT_TRUE(status.ok()) << status.to_string();
}

/// A whole run of one row under `rule`.
inline std::vector<Outcome> run_rule(const RuleRequest& request, const CacheTrace& trace) {
  Result<StepCache> cache = StepCache::make(request);
  EXPECT_TRUE(cache.ok()) << cache.status().to_string();
  std::vector<Outcome> outcomes(static_cast<size_t>(trace.steps));
  if (!cache.ok()) return outcomes;
  for (int64_t step = 0; step < trace.steps; ++step) {
    std::vector<CacheRow> rows = {trace_row(trace, step, outcomes[step])};
    run_step(*cache, rows, {&trace}, {&outcomes[step]});
  }
  return outcomes;
}

inline std::vector<Outcome> run_rule(const std::string& rule, const CacheTrace& trace) {
  RuleRequest request;
  request.rule = rule;
  return run_rule(request, trace);
}

inline std::string decisions(const std::vector<Outcome>& outcomes) {
  std::string text;
  for (const Outcome& o : outcomes) text += o.computed ? '#' : '.';
  return text;
}

/// Equal up to rounding: sums of a few float32 products, in another order than the transcription's.
inline void expect_near(const Tensor& got, const Tensor& want, const std::string& where) {
  ASSERT_EQ(got.size(), want.size()) << where;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 4e-6 * (1 + std::fabs(want[i]))) << where << " element " << i;
}

}  // namespace redline::testing
