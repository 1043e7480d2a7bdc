// Costs of an open engine's steps, their bounds on this machine, and its compiled program: for benchmarks, `inspect`
// and the metrics of a server. Generating text needs nothing of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "redline/text.h"

namespace redline {

/// What a machine can do at most.
struct MachineLimits {
  double read_bytes_per_s = 0;
  /// With weights, or cached values, of each type ("q4_0", "f16"): two operations per multiply-add.
  std::map<std::string, double> operations_per_s;
};
/// What MachineLimits depend on.
struct MachineQuestion {
  int threads = 0;
  int64_t step_bytes = 0;  ///< that a step reads: it may fit in a cache
  bool exact_f32 = false;  ///< everything is computed in float32
  std::vector<std::string> types;
  bool may_measure = true;  ///< false: only what is known already; no limits if nothing is
};
using MachineLimitsOf = std::function<MachineLimits(const MachineQuestion&)>;

class EngineProfile {
 public:
  virtual ~EngineProfile() = default;

  /// Human-readable listing of the compiled program: stages, tasks, events, arena.
  virtual std::string describe_program() const = 0;
  /// Bytes of weights and cache that one step must read, and its floating-point operations, if each of `sequences` adds
  /// `tokens` rows at `depth`.
  struct StepCost {
    double bytes = 0, flops = 0;
  };
  virtual StepCost step_cost(int64_t tokens, int64_t depth, int64_t sequences = 1) const = 0;
  /// The same step by kind of work; the sums equal those of step_cost.
  struct OpCost {
    std::string name;  ///< "layers", "experts" and "output" (linear ops with weights of one type), "attention"
    std::string type;  ///< of the weights, or of cached keys and values: "q4_0", "f16"
    double bytes = 0, flops = 0;
  };
  virtual std::vector<OpCost> op_costs(int64_t tokens, int64_t depth, int64_t sequences = 1) const = 0;

  /// From now on EngineStats::bound_seconds counts every step. Asks `limits_of`, whose measurement may take half a
  /// second: while requests run, only for limits that are known already; if they are not, a later call asks again.
  /// Thread-safe; steps wait meanwhile.
  virtual void count_bounds(const MachineLimitsOf& limits_of) = 0;
};

/// Every engine returned by TextEngine::open has a profile.
const EngineProfile& profile_of(const TextEngine& engine);
EngineProfile& profile_of(TextEngine& engine);

}  // namespace redline
