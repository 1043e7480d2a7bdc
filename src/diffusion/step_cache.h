// The step cache: which steps of a denoiser are computed, and what stands for the others.
//
// One mechanism for every method: probe (some blocks at the front, or nothing), statistic (how far has this row moved),
// decision (threshold, sum, or a fixed mask), forecast (of the one tensor that the skipped span would have added).
// Methods are pages in step_cache/rules/; docs/step_cache.md says what each does and what was measured.
//
// A pipeline calls, for every step, with all rows of its batch:
//
//     cache.before(rows);       // kSkipAll: the velocity is written, nothing runs. kProbe: run the probe, then
//     cache.after_probe(rows);  // kCompute: run body and head. kSkipBody: the body's output is written, run the head
//     cache.after_head(rows);   // results are stored
//
// Rows may come in any order and grouping (branches of guidance batched, or one call after the other with the
// conditional branch first); state is kept for each (request, branch), so requests of one batch may be at different
// steps of different runs and decide differently. A row's state begins anew by itself when its step is not the one
// after the last, or the number of steps, a length, or the kind of solver changes, or sigma rises: a new picture,
// another size, an interrupted run, a branch that guidance had left out.
//
// Repay: an Euler step is x += step_size * velocity, so errors of forecasts stay in x. When a step b' is computed after
// skips that began at b, the velocities in between are known better: on the line from v_b to v_b' (in the clock of
// sigma). The difference that this would have made, sum step_size_k (line_k - forecast_k), is added to the velocity
// that is handed to the solver at b', over its step size. Stored values stay as computed. Solvers that are not Euler
// say so by step_size 0.
#pragma once

#include <map>
#include <optional>

#include "diffusion/step_cache/rule.h"

namespace redline {

class StepCache {
 public:
  /// Errors as plan_rule.
  static Result<StepCache> make(const RuleRequest& request);
  explicit StepCache(RulePlan plan);
  StepCache(StepCache&&) noexcept;
  StepCache& operator=(StepCache&&) noexcept;
  ~StepCache();

  const RulePlan& plan() const { return plan_; }
  /// CacheRow::modulated must be given.
  bool wants_modulated() const;
  /// Whether before() may leave everything out, so that rows need no probe on skipped steps.
  bool skips_probe() const { return plan_.span == SkippedSpan::kNetwork || plan_.span == SkippedSpan::kChange; }

  /// invalid_argument: a span that the rule reads is missing or has the wrong length (named).
  Status before(std::span<CacheRow> rows);
  Status after_probe(std::span<CacheRow> rows);
  Status after_head(std::span<CacheRow> rows);

  /// Drops a request's state: when it is done, was cancelled, or its network changes (another expert, other adapters).
  void forget(uint64_t request);

  struct Report {
    std::vector<CacheAction> actions;  ///< of each step since the state began
    std::vector<double> statistics;    ///< what was measured there; NaN where nothing was
    int64_t not_numbers = 0;  ///< steps computed because a statistic was NaN, or forecast by reuse for a weight
  };
  /// nullptr: no such row.
  const Report* report(uint64_t request, int64_t branch) const;
  /// Of all stored tensors.
  int64_t bytes() const;

 private:
  struct Row;
  using Key = std::pair<uint64_t, int64_t>;
  Row& state_of(const CacheRow& row);
  Status decide(const CacheRow& row, Row& state, bool& skips);
  bool skips(const StepView& view, Row& state);
  void measure(const StepView& view, Row& state) const;
  void forecast(const CacheRow& row, Row& state);
  void store(CacheRow& row, Row& state);
  void owe(const CacheRow& row, Row& state) const;

  RulePlan plan_;
  std::map<Key, std::unique_ptr<Row>> rows_;
};

}  // namespace redline
