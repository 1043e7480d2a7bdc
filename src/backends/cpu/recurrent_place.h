// The location of a kRecurrent state in the pages of its group.
#pragma once

#include "backends/cpu/lowering.h"

namespace redline {

struct RecurrentPlace {
  size_t group = 0;
  int64_t offset = 0;

  /// Returns the place of input i, which must be a kRecurrent state.
  static RecurrentPlace of(const LowerContext& c, size_t i) {
    const KvPlace place = c.kv_state(i);
    return {place.group, place.keys};
  }
  /// Return the state of a sequence before the step, and the memory to which the step writes it.
  const float* before(const StepContext& step, size_t sequence) const { return data(step, sequence, 0); }
  float* after(const StepContext& step, size_t sequence) const { return data(step, sequence, 1); }

 private:
  float* data(const StepContext& step, size_t sequence, size_t which) const {
    const StateStep& state = step.states[group];
    return reinterpret_cast<float*>(state.memory + state.pages[sequence][which] * state.page_bytes + offset);
  }
};

}  // namespace redline
