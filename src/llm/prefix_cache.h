// State that requests with the same beginning share.
#pragma once

#include <cstdint>
#include <span>

#include "llm/state_pool.h"

namespace redline {

/// Called by the thread that runs the steps, with the stepper's mutex held.
class PrefixCache {
 public:
  virtual ~PrefixCache() = default;
  /// Forks the state of the longest stored prefix of `tokens` into `state`, which is new. Returns its length.
  virtual int64_t restore(std::span<const int32_t> tokens, SequenceState& state) = 0;
  /// Offers the state of a sequence with these tokens.
  virtual void store(std::span<const int32_t> tokens, const SequenceState& state) = 0;
  /// Frees pages that no sequence uses. False: there are none.
  virtual bool evict() = 0;
};

}  // namespace redline
