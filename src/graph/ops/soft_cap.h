// Soft limit of logits.
#pragma once

#include "graph/graph.h"

namespace redline {

struct SoftCapAttrs {
  float cap = 0;  ///< above 0
};

/// y = cap tanh(x / cap), elementwise; x f32 [rows, cols]. Bounds logits (Gemma Team 2024, arXiv:2408.00118).
Value soft_cap(GraphBuilder& g, Value x, SoftCapAttrs attrs);

extern const OpDef kSoftCap;

}  // namespace redline
