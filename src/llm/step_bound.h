// Bytes and operations of a step, and its lower bound in time (roofline).
#pragma once

#include <span>
#include <vector>

#include "graph/state.h"
#include "llm/text_model.h"
#include "redline/engine_profile.h"

namespace redline {

/// The work of one step that does not depend on how it is done.
struct StepWork {
  double tokens = 0, logit_rows = 0;
  /// Of cached keys and values and of recurrent states that are read; a page that several sequences share counts once.
  double kv_bytes = 0;
  double pairs = 0;  ///< of a token and a position that it attends to, summed over the layers

  /// The attention of all layers for one sequence: `tokens` more after `depth`. Layers with a window read no further
  /// back.
  void add_attention(std::span<const StateGroup> groups, double tokens, double depth);
};
/// Bytes of one position in all layers of a group.
double position_bytes(const StateGroup& group);

/// `kv_type`: type of cached keys and values ("f16", "bf16", "f32").
std::vector<EngineProfile::OpCost> op_costs(const TextModel& model, const StepWork& work, const char* kv_type);

/// The least time of one kind of work: its reading and its arithmetic overlap. A limit of 0 is unknown and bounds
/// nothing. Kinds of work follow one another, so the bound of a step is the sum of its kinds' (lab/machine/roofline.h).
double min_seconds(const EngineProfile::OpCost& op, double read_bytes_per_s, double operations_per_s);

double min_seconds(std::span<const EngineProfile::OpCost> costs, const MachineLimits& limits);

}  // namespace redline
