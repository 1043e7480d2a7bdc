// A rule combines a statistic, a decision, a forecaster and guards into a method. Every known method is one file in
// rules/, whose row the build finds: fbcache_rule.cc has kFbcacheRule.
#pragma once

#include <functional>
#include <map>

#include "diffusion/step_cache/forecaster.h"
#include "diffusion/step_cache/guards.h"
#include "diffusion/step_cache/statistic.h"

namespace redline {

/// The part of the network that a skipped step does not run; a forecast replaces what it would add.
enum class SkippedSpan : uint8_t {
  kMiddle,    ///< the middle: middle = front_image + forecast of (middle - front_image)
  kBlocks,    ///< all blocks before the tail: middle = embedded + forecast of (middle - embedded)
  kOutput,    ///< everything: output = forecast of the output; no program runs
  kResidual,  ///< everything: output = latents + forecast of (output - latents); no program runs
};

enum class Decision : uint8_t {
  kNever,      ///< never skip
  kAlways,     ///< skip unless a guard forces the step to be computed
  kBelow,      ///< skip while the statistic < threshold
  kSumBelow,   ///< skip while the sum of the statistic since the last computed step < threshold
  kSumAtMost,  ///< skip while that sum <= threshold
};

/// A method with its parameters, ready to run.
struct RulePlan {
  SkippedSpan span = SkippedSpan::kMiddle;
  Decision decision = Decision::kNever;
  double threshold = 0;
  std::function<std::unique_ptr<Statistic>(int64_t steps)> statistic;
  std::function<std::unique_ptr<Forecaster>()> forecaster = make_reuse_forecaster;
  Guards guards;
  bool share_decision = false;  ///< other branches use the decision of branch 0 in the same step
  bool joint = false;           ///< with share_decision: branch 0 decides by the mean statistic of all branches
  /// Forecast errors are corrected at the next computed step (StepCache, error correction).
  bool correct_errors = false;
  int64_t front_blocks = 0;  ///< blocks that the denoiser's front must have
  int64_t budget = 0;        ///< computed steps of the schedule, if the request has a budget; 0: it has none
  int64_t tail_blocks = 0;   ///< blocks after the skipped span (cache-dit's Bn)
  std::string description;   ///< "fbcache:threshold=0.08": every parameter that is not at its default
};

/// The outputs of the network's parts (CacheRow) that a rule reads. The other outputs stay in the memory of the back
/// end.
struct RowReads {
  bool embedded = false, front_image = false, modulated = false;
  bool middle_image = false;  ///< read when computed, written on a skip
  bool text = false;          ///< front_text and middle_text, if the tail reads the latter
};
/// Returns the outputs that the skipped span, the statistic and the forecaster need.
RowReads reads_of(const RulePlan& plan);

/// The computed steps of a run of `steps`, found for one model by `redline calibrate`.
struct CalibratedMask {
  int64_t steps = 0;
  std::vector<int64_t> computed;  ///< increasing, the first is 0
};

/// The user's settings of the cache.
struct RuleRequest {
  std::string rule;  ///< "NAME" or "NAME:parameter=value,..."; "auto"; "": auto with a quality or a budget, else none
  double quality = -1;                ///< 0 .. 1, sets the threshold; -1: unset
  int64_t steps_budget = 0;           ///< number of computed steps; 0: unset
  std::vector<CalibratedMask> masks;  ///< masks of the model, for budgets
};

enum class ParameterKind : uint8_t { kNumber, kInteger, kFlag, kName, kSteps, kNumbers };

struct RuleParameter {
  const char* name;
  ParameterKind kind;
  const char* fallback;  ///< the default as text
  double min, max;       ///< range of numbers and integers
  const char* help;
  /// The parameter decides how many steps are computed. If the rule's text sets it, `redline compare` does not tune the
  /// rule.
  bool sets_cost = false;
};

/// Parameters of a rule by name, checked against its list.
class RuleValues {
 public:
  double number(const std::string& name) const;
  int64_t integer(const std::string& name) const { return static_cast<int64_t>(number(name)); }
  bool flag(const std::string& name) const { return number(name) != 0; }
  const std::string& text(const std::string& name) const { return texts_.at(name); }
  /// Returns a list of steps: "0-3+7+9" is 0 1 2 3 7 9.
  const std::vector<int64_t>& steps(const std::string& name) const { return steps_.at(name); }
  /// Returns a list of numbers: "1.0/0.98/0.95".
  const std::vector<double>& list(const std::string& name) const { return lists_.at(name); }
  bool given(const std::string& name) const {
    const auto at = given_.find(name);
    return at != given_.end() && at->second;
  }

  /// Sets a parameter from text. `is_given`: the user has set it; false: it is the default. invalid_argument:
  /// malformed, or out of range.
  Status set(const RuleParameter& parameter, const std::string& text, bool is_given);
  void set_number(const std::string& name, double value) { numbers_[name] = value; }

 private:
  std::map<std::string, double> numbers_;
  std::map<std::string, std::string> texts_;
  std::map<std::string, std::vector<int64_t>> steps_;
  std::map<std::string, std::vector<double>> lists_;
  std::map<std::string, bool> given_;
};

/// The parameter that `redline compare` varies so that a rule executes a given share of the operations.
struct TuningKnob {
  enum class Kind : uint8_t {
    kNone,       ///< the rule is not tuned
    kThreshold,  ///< a number, searched on a logarithmic scale
    kInteger,
    /// the number of computed steps, for rules whose skipped steps execute nothing: it follows from the share without a
    /// search
    kBudget,
    kChoice,  ///< one of `choices`
  };
  Kind kind = Kind::kNone;
  const char* parameter = "";
  double min = 0, max = 0;
  std::span<const char* const> choices = {};
};

/// A method. Each file in rules/ defines one row.
struct RuleRow {
  const char* name;
  const char* summary;
  const char* source;  ///< paper or repository
  std::span<const RuleParameter> parameters = {};
  /// The threshold at quality 0.5; it is twice as large at quality 0 and zero at quality 1. 0: the rule takes no
  /// quality.
  double threshold_at_half = 0;
  bool takes_budget = false;  ///< the rule uses RuleRequest::steps_budget
  bool is_default = false;    ///< "auto" selects this rule
  TuningKnob knob = {};
  Result<RulePlan> (*plan)(const RuleValues& values, const RuleRequest& request);
};

inline constexpr const char* kAutoRule = "auto";
std::span<const RuleRow* const> rules();
/// Returns the rule with this name; "auto" is the rule that Redline recommends. invalid_argument: the message lists the
/// names.
Result<const RuleRow*> find_rule(const std::string& name);
/// Returns the plan for `request`. invalid_argument: no such rule (the message lists the names), an unknown parameter
/// (the message lists those of the rule), a malformed value or one out of range, a quality for a rule without a
/// threshold, or both quality and budget.
Result<RulePlan> plan_rule(const RuleRequest& request);
/// Returns the text about rules and parameters for --help and the documentation.
std::string rules_help();

/// Returns a mask with cache-dit's run lengths for a policy ("slow", "medium", "fast", "ultra"), for any number of
/// steps (rules/mask_rule.cc).
Result<std::vector<uint8_t>> policy_mask(const std::string& policy, int64_t steps);
/// Returns a mask of `budget` computed steps that needs no calibration (rules/redline_rule.cc).
std::vector<uint8_t> power_mask(int64_t steps, int64_t budget);
/// Returns the mask among `masks` with exactly these numbers of steps and computed steps, else power_mask().
std::vector<uint8_t> budget_mask(const std::vector<CalibratedMask>& masks, int64_t steps, int64_t budget);
/// Converts step numbers to a mask of `steps`; larger numbers are ignored.
std::vector<uint8_t> mask_of(const std::vector<int64_t>& computed, int64_t steps);

}  // namespace redline
