// Rules: which statistic, decision and forecaster make up a method, with its guards. Every known method is one page in
// rules/; to add one: its page, its declaration here and its row in rule.cc.
#pragma once

#include <functional>
#include <map>

#include "diffusion/step_cache/forecaster.h"
#include "diffusion/step_cache/statistic.h"

namespace redline {

/// The part of the network that a skip leaves out and a forecast stands for.
enum class SkippedSpan : uint8_t {
  kBody,     ///< what follows the probe: body = probed + forecast of (body - probed)
  kStack,    ///< all blocks: body = embedded + forecast of (body - embedded)
  kNetwork,  ///< everything: velocity = forecast of velocity; no program runs
  kChange,   ///< everything: velocity = latents + forecast of (velocity - latents); no program runs
};

enum class Decision : uint8_t {
  kNever,      ///< compute, unless the schedule says otherwise
  kAlways,     ///< skip, where no guard, schedule or cap forbids it
  kBelow,      ///< skip while the statistic < threshold
  kSumBelow,   ///< skip while its sum since the last computed step < threshold
  kSumAtMost,  ///< .. <= threshold
};

/// A method with its parameters, ready to run.
struct RulePlan {
  SkippedSpan span = SkippedSpan::kBody;
  Decision decision = Decision::kNever;
  double threshold = 0;
  std::function<std::unique_ptr<Statistic>(int64_t steps)> statistic;
  std::function<std::unique_ptr<Forecaster>()> forecaster = make_reuse_forecaster;
  /// [steps]: 1 computes, 0 leaves the step to the decision. Empty: every step is left to it.
  std::function<std::vector<uint8_t>(int64_t steps)> schedule;
  /// Steps that are computed first, as a function of the number of steps.
  std::function<int64_t(int64_t steps)> first = [](int64_t) { return int64_t{1}; };
  int64_t first_interval = 1;  ///< only every n-th of them must be computed
  bool last = false;           ///< the last step is computed
  int64_t fewest_steps = 0;    ///< runs of fewer steps are computed throughout
  int64_t max_cached = -1;     ///< skipped steps of a run; -1: no limit
  int64_t max_consecutive = -1;
  /// The count of consecutive skips goes on over a computed step that was the decision's (cache-dit's way), and begins
  /// anew only where this cap computed.
  bool sticky_count = false;
  double max_accumulated = -1;  ///< sum of a run's statistics; <= 0: no limit
  bool follow = false;          ///< other branches do as branch 0 of the same step
  bool joint = false;           ///< with follow: branch 0 decides on the mean of all branches' sums
  /// What was forecast wrongly is taken back at the next computed step (StepCache, "repay").
  bool repay = false;
  int64_t probe_blocks = 0;  ///< that the denoiser's probe should have
  int64_t budget = 0;        ///< computed steps that the schedule was made for; 0: it was not made for a number
  int64_t tail_blocks = 0;   ///< blocks that should follow the skipped span (cache-dit's Bn)
  std::string description;   ///< "fbcache:threshold=0.08": every parameter that is not at its default
};

/// The steps to compute of a run of `steps`, searched for one model (`redline calibrate`).
struct CalibratedMask {
  int64_t steps = 0;
  std::vector<int64_t> computed;  ///< rising, from 0
};

/// What a person asks of the cache.
struct RuleRequest {
  std::string rule;          ///< "NAME" or "NAME:parameter=value,..."; "" or "auto": ours when a knob is set, else none
  double quality = -1;       ///< 0 .. 1, sets the threshold; -1: not given
  int64_t steps_budget = 0;  ///< computed steps; 0: not given
  std::vector<CalibratedMask> masks;  ///< of the model, for budgets
};

enum class ParameterKind : uint8_t { kNumber, kInteger, kFlag, kName, kSteps, kNumbers };

struct RuleParameter {
  const char* name;
  ParameterKind kind;
  const char* fallback;  ///< its default as text
  double least, most;    ///< of numbers and integers
  const char* help;
};

/// Parameters of a rule by name, checked against its list.
class RuleValues {
 public:
  double number(const std::string& name) const;
  int64_t integer(const std::string& name) const { return static_cast<int64_t>(number(name)); }
  bool flag(const std::string& name) const { return number(name) != 0; }
  const std::string& text(const std::string& name) const { return texts_.at(name); }
  /// "0-3+7+9": 0 1 2 3 7 9.
  const std::vector<int64_t>& steps(const std::string& name) const { return steps_.at(name); }
  /// "1.0/0.98/0.95".
  const std::vector<double>& list(const std::string& name) const { return lists_.at(name); }
  bool given(const std::string& name) const { return given_.contains(name); }

 private:
  friend Result<RulePlan> plan_rule(const RuleRequest& request);
  Status set(const RuleParameter& parameter, const std::string& text);
  std::map<std::string, double> numbers_;
  std::map<std::string, std::string> texts_;
  std::map<std::string, std::vector<int64_t>> steps_;
  std::map<std::string, std::vector<double>> lists_;
  std::map<std::string, bool> given_;
};

struct RuleInfo {
  const char* name;
  const char* summary;
  const char* source;  ///< paper or repository
  std::vector<RuleParameter> parameters;
  /// The threshold at quality 0.5, doubled at 0 and zero at 1; 0: the rule takes no quality.
  double threshold_at_half;
  Result<RulePlan> (*plan)(const RuleValues& values, const RuleRequest& request);
};

const std::vector<RuleInfo>& rules();
/// What `request` asks for. not_found: no such rule, the names are listed. invalid_argument: an unknown parameter (its
/// rule's are listed), a value that is none or out of range, a quality for a rule without threshold, quality with
/// budget.
Result<RulePlan> plan_rule(const RuleRequest& request);
/// Rules and parameters for --help and the documentation.
std::string rules_help();

// Pages.
RuleInfo none_rule();
RuleInfo redline_rule();
RuleInfo fbcache_rule();
RuleInfo dbcache_rule();
RuleInfo teacache_rule();
RuleInfo easycache_rule();
RuleInfo taylorseer_rule();
RuleInfo magcache_rule();
RuleInfo dicache_rule();
RuleInfo mask_rule();

/// cache-dit's run lengths by policy ("slow", "medium", "fast", "ultra") for any number of steps (rules/mask_rule.cc).
Result<std::vector<uint8_t>> policy_mask(const std::string& policy, int64_t steps);
/// A mask of `budget` computed steps that needs no calibration (rules/redline_rule.cc).
std::vector<uint8_t> power_mask(int64_t steps, int64_t budget);
/// That of `masks` for exactly so many steps and computed steps; power_mask when there is none.
std::vector<uint8_t> budget_mask(const std::vector<CalibratedMask>& masks, int64_t steps, int64_t budget);
/// Step numbers as a mask; those beyond it are left out.
std::vector<uint8_t> mask_of(const std::vector<int64_t>& computed, int64_t steps);

}  // namespace redline
