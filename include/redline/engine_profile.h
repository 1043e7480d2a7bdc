// Costs of an open engine's steps, their bounds on this machine, and its compiled program: for benchmarks, `inspect`
// and the metrics of a server. Programs that only generate text do not need it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "redline/text.h"

namespace redline {

/// Measured upper limits of a machine.
struct MachineLimits {
  double read_bytes_per_s = 0;
  /// Operations per second by type of the weights or cached values ("q4_0", "f16"). A multiply-add is two operations.
  std::map<std::string, double> operations_per_s;
};
/// Parameters of a measurement of MachineLimits.
struct MachineQuestion {
  int threads = 0;
  /// bytes that a step reads; a small step may fit in a CPU cache, which is faster than memory
  int64_t step_bytes = 0;
  bool exact_f32 = false;  ///< everything is computed in float32
  std::vector<std::string> types;
  bool may_measure = true;  ///< false: uses only limits that are already known, and returns empty limits if none are
};
using MachineLimitsOf = std::function<MachineLimits(const MachineQuestion&)>;

/// Costs and bounds of one engine.
class EngineProfile {
 public:
  virtual ~EngineProfile() = default;

  /// Human-readable listing of the compiled program: stages, tasks, events, arena.
  virtual std::string describe_program() const = 0;
  /// Bytes of weights and cache that one step must read, and its floating-point operations, if each of `sequences`
  /// sequences adds `tokens` tokens after `depth` cached positions.
  struct StepCost {
    double bytes = 0, flops = 0;
  };
  virtual StepCost step_cost(int64_t tokens, int64_t depth, int64_t sequences = 1) const = 0;
  /// Cost of the work of one kind in a step. Over all kinds, the sums equal step_cost.
  struct OpCost {
    std::string name;  ///< "layers", "experts" and "output" (linear ops with weights of one type), "attention"
    std::string type;  ///< type of the weights, or of cached keys and values: "q4_0", "f16"
    double bytes = 0, flops = 0;
  };
  virtual std::vector<OpCost> op_costs(int64_t tokens, int64_t depth, int64_t sequences = 1) const = 0;

  /// Starts adding the bound of every step to EngineStats::bound_seconds. Gets the limits from `limits_of`, whose
  /// measurement may take half a second. While requests run it only uses limits that are already known; without them it
  /// does nothing, and a later call tries again. Thread-safe; steps wait meanwhile.
  virtual void count_bounds(const MachineLimitsOf& limits_of) = 0;
};

/// Every engine returned by TextEngine::open has a profile.
const EngineProfile& profile_of(const TextEngine& engine);
EngineProfile& profile_of(TextEngine& engine);

}  // namespace redline
