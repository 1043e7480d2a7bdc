// Where a kRecurrent state lies in the pages of its group.
#pragma once

#include "backends/cpu/lowering.h"

namespace redline {

struct RecurrentPlace {
  size_t group = 0;
  int64_t offset = 0;

  /// Of input i, a kRecurrent state.
  static RecurrentPlace of(const LowerContext& c, size_t i) {
    const KvPlace place = c.kv_state(i);
    return {place.group, place.keys};
  }
  /// What a sequence of the step has before it, and what the step writes.
  const float* before(const StepContext& step, size_t sequence) const { return data(step, sequence, 0); }
  float* after(const StepContext& step, size_t sequence) const { return data(step, sequence, 1); }

 private:
  float* data(const StepContext& step, size_t sequence, size_t which) const {
    const StateStep& state = step.states[group];
    return reinterpret_cast<float*>(state.memory + state.pages[sequence][which] * state.page_bytes + offset);
  }
};

}  // namespace redline
