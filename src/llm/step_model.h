// A network that runs step by step over the states of sequences, as a Stepper needs it.
#pragma once

#include "graph/graph.h"

namespace redline {

/// A network of steps. Its graph has the ports of PortRole: tokens, positions and at least one of logits and hidden
/// states, with the rows that select them. The heads of attention follow from its ops and states.
struct StepModel {
  Graph graph;
  int64_t vocab_size = 0;    ///< token ids are below it
  int64_t context = 0;       ///< maximum tokens of one sequence; TextEngineOptions::context may leave it to the memory
  int64_t weight_bytes = 0;  ///< bytes of all weights, of which the memory for caches is what remains
  /// Format in which the CPU keeps keys and values, unless everything is computed in float32.
  KvFormat cpu_kv_format = KvFormat::kF16;
};

}  // namespace redline
