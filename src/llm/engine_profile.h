// Costs and the compiled program of an open engine, for benchmarks and `inspect`; not part of the public API.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "redline/text.h"

namespace redline {

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
};

/// Every engine returned by TextEngine::open has a profile.
const EngineProfile& profile_of(const TextEngine& engine);

}  // namespace redline
