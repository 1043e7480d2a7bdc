// Bytes and operations of a step, and its lower bound in time (roofline).
#pragma once

#include <span>
#include <vector>

#include "graph/state.h"
#include "llm/text_model.h"
#include "redline/engine_profile.h"

namespace redline {

/// The minimum work of one step, independent of kernels and device.
struct StepWork {
  double tokens = 0, logit_rows = 0;
  /// Bytes of cached keys and values and of recurrent states that the step reads; a page that several sequences share
  /// counts once.
  double kv_bytes = 0;
  double pairs = 0;  ///< pairs of a token and a position that it attends to, summed over the layers

  /// Adds the attention of all layers for one sequence that appends `tokens` tokens after `depth`. Layers with a
  /// sliding window read only the window.
  void add_attention(std::span<const StateGroup> groups, double tokens, double depth);
};
/// Returns the bytes of one position in all layers of a group.
double position_bytes(const StateGroup& group);

/// Returns the costs of a step by kind of work. `kv_type`: type of cached keys and values ("f16", "bf16", "f32").
std::vector<EngineProfile::OpCost> op_costs(const TextModel& model, const StepWork& work, const char* kv_type);

}  // namespace redline
