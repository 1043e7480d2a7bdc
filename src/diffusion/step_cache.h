// The step cache decides which steps of a denoiser are computed and forecasts the others.
//
// All methods have the same four parts: a probe (the values that some blocks at the front add, or nothing), a statistic
// (how far a row has moved), a decision (threshold, sum, or a fixed mask) and a forecast (of the one tensor that the
// skipped span would have added). Each method is a file in step_cache/rules/; docs/step_cache.md describes the methods
// and their measurements.
//
// At every step a pipeline calls, with all rows of its batch:
//
//     cache.before(rows);       // kSkipAll: model_output is written, nothing runs. kRunFront: run the front, then
//     cache.after_front(rows);  // kCompute: run middle and tail. kSkipMiddle: the middle's output is written, run tail
//     cache.after_tail(rows);   // results are stored
//
// Rows may come in any order and grouping (guidance branches in one call, or in one call each with the conditional
// branch first). State is kept for each (request, branch), so requests of one batch may be at different steps of
// different runs and decide differently. A row's state is reset if its step does not follow the last one, if the number
// of steps, a length or the kind of solver changes, or if sigma increases. This happens with a new image, another size,
// an interrupted run, or a branch that guidance had omitted.
//
// Error correction: an Euler step is x += step_size * model_output, so forecast errors stay in x. When step c is
// computed after skips that began after step b, better values of the outputs in between are known: those on the line
// from v_b to v_c, as a function of u(sigma) (forecaster.h). The correction, sum step_size_k (line_k - forecast_k)
// divided by the step size of c, is added to the output that the solver gets at c. Stored values are not corrected. For
// solvers that are not Euler step_size is 0, and nothing is corrected.
#pragma once

#include <map>
#include <optional>

#include "diffusion/step_cache/rule.h"

namespace redline {

class StepCache {
 public:
  /// Makes a cache. Errors: as plan_rule().
  static Result<StepCache> make(const RuleRequest& request);
  explicit StepCache(RulePlan plan);
  StepCache(StepCache&&) noexcept;
  StepCache& operator=(StepCache&&) noexcept;
  ~StepCache();

  const RulePlan& plan() const { return plan_; }
  /// Returns the spans of a CacheRow that are needed besides latents and model_output.
  const RowReads& reads() const { return reads_; }
  /// Returns true if before() may skip the whole network, so that skipped steps do not run the front.
  bool skips_front() const { return plan_.span == SkippedSpan::kOutput || plan_.span == SkippedSpan::kResidual; }

  /// Called in this order at every step; see the head of the file. invalid_argument: a span that the rule reads is
  /// missing or has the wrong length; the message names it.
  Status before(std::span<CacheRow> rows);
  Status after_front(std::span<CacheRow> rows);
  Status after_tail(std::span<CacheRow> rows);

  /// Drops the state of a request that is done or cancelled, or whose network changes (another expert, other adapters).
  void forget(uint64_t request);

  struct Report {
    std::vector<CacheAction> actions;  ///< action of each step since the state began
    std::vector<double> statistics;    ///< statistic of each of these steps; NaN: none was measured
    int64_t num_not_finite = 0;        ///< steps with a NaN statistic (computed) or forecast weight (reused)
  };
  /// Returns the report of a row; nullptr: no such row.
  const Report* report(uint64_t request, int64_t branch) const;
  /// Returns the bytes of all stored tensors.
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
  void accumulate_error(const CacheRow& row, Row& state) const;

  RulePlan plan_;
  RowReads reads_;
  std::map<Key, std::unique_ptr<Row>> rows_;
};

}  // namespace redline
