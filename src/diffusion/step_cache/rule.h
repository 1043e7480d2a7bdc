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
  kSumBelow,   ///< skip while its sum since the last computed step < threshold
  kSumAtMost,  ///< .. <= threshold
};

/// A method with its parameters, ready to run.
struct RulePlan {
  SkippedSpan span = SkippedSpan::kMiddle;
  Decision decision = Decision::kNever;
  double threshold = 0;
  std::function<std::unique_ptr<Statistic>(int64_t steps)> statistic;
  std::function<std::unique_ptr<Forecaster>()> forecaster = make_reuse_forecaster;
  Guards guards;
  bool share_decision = false;  ///< other branches take the decision of branch 0 of the same step
  bool joint = false;           ///< with share_decision: branch 0 decides by the mean over all branches
  /// Forecast errors are corrected at the next computed step (StepCache, error correction).
  bool correct_errors = false;
  int64_t front_blocks = 0;  ///< blocks that the denoiser's front must have
  int64_t budget = 0;        ///< computed steps of the schedule, where a budget was given; 0: none was
  int64_t tail_blocks = 0;   ///< blocks after the skipped span (cache-dit's Bn)
  std::string description;   ///< "fbcache:threshold=0.08": every parameter that is not at its default
};

/// What a rule takes of the outputs of the network's parts (CacheRow); the rest stays in the memory of the back end.
struct RowReads {
  bool embedded = false, front_image = false, modulated = false;
  bool middle_image = false;  ///< read when computed, written on a skip
  bool text = false;          ///< front_text and middle_text, if the tail reads the latter
};
/// By the span that a skip leaves out, the statistic and the forecaster.
RowReads reads_of(const RulePlan& plan);

/// The computed steps of a run of `steps`, found for one model by `redline calibrate`.
struct CalibratedMask {
  int64_t steps = 0;
  std::vector<int64_t> computed;  ///< increasing, the first is 0
};

/// The user's settings of the cache.
struct RuleRequest {
  std::string rule;  ///< "NAME" or "NAME:parameter=value,..."; "auto"; "": auto with a quality or a budget, else none
  double quality = -1;                ///< 0 .. 1, sets the threshold; -1: not given
  int64_t steps_budget = 0;           ///< computed steps; 0: not given
  std::vector<CalibratedMask> masks;  ///< of the model, for budgets
};

enum class ParameterKind : uint8_t { kNumber, kInteger, kFlag, kName, kSteps, kNumbers };

struct RuleParameter {
  const char* name;
  ParameterKind kind;
  const char* fallback;  ///< its default as text
  double min, max;       ///< of numbers and integers
  const char* help;
  /// Decides how many steps are computed: a rule whose text gives it is not tuned.
  bool sets_cost = false;
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
  bool given(const std::string& name) const {
    const auto at = given_.find(name);
    return at != given_.end() && at->second;
  }

  /// `is_given`: by the user, and not as its default. invalid_argument: malformed, or out of range.
  Status set(const RuleParameter& parameter, const std::string& text, bool is_given);
  void set_number(const std::string& name, double value) { numbers_[name] = value; }

 private:
  std::map<std::string, double> numbers_;
  std::map<std::string, std::string> texts_;
  std::map<std::string, std::vector<int64_t>> steps_;
  std::map<std::string, std::vector<double>> lists_;
  std::map<std::string, bool> given_;
};

/// The parameter that `redline compare` searches so that a rule executes a wanted share of the operations.
struct TuningKnob {
  enum class Kind : uint8_t {
    kNone,       ///< the rule is not tuned
    kThreshold,  ///< a number, searched on a logarithmic scale
    kInteger,
    kBudget,  ///< the number of computed steps, where a skip executes nothing: follows from the share without a search
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
  /// The threshold at quality 0.5, doubled at 0 and zero at 1; 0: the rule takes no quality.
  double threshold_at_half = 0;
  bool takes_budget = false;  ///< RuleRequest::steps_budget
  bool is_default = false;    ///< the one that "auto" stands for
  TuningKnob knob = {};
  Result<RulePlan> (*plan)(const RuleValues& values, const RuleRequest& request);
};

inline constexpr const char* kAutoRule = "auto";
std::span<const RuleRow* const> rules();
/// By name; "auto" is the rule that Redline recommends. invalid_argument: the message lists the names.
Result<const RuleRow*> find_rule(const std::string& name);
/// The plan for `request`. invalid_argument: no such rule (the message lists the names), an unknown parameter
/// (the message lists those of the rule), a malformed value or one out of range, a quality for a rule without a
/// threshold, or both quality and budget.
Result<RulePlan> plan_rule(const RuleRequest& request);
/// Rules and parameters for --help and the documentation.
std::string rules_help();

/// cache-dit's run lengths by policy ("slow", "medium", "fast", "ultra") for any number of steps (rules/mask_rule.cc).
Result<std::vector<uint8_t>> policy_mask(const std::string& policy, int64_t steps);
/// A mask of `budget` computed steps that needs no calibration (rules/redline_rule.cc).
std::vector<uint8_t> power_mask(int64_t steps, int64_t budget);
/// The mask among `masks` with exactly these numbers of steps and computed steps, else power_mask.
std::vector<uint8_t> budget_mask(const std::vector<CalibratedMask>& masks, int64_t steps, int64_t budget);
/// Step numbers as a mask of `steps`; larger numbers are ignored.
std::vector<uint8_t> mask_of(const std::vector<int64_t>& computed, int64_t steps);

}  // namespace redline
