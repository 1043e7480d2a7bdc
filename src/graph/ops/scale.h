// Multiplication by a constant.
#pragma once

#include "graph/graph.h"

namespace redline {

struct ScaleAttrs {
  float factor = 1;
};

/// y = factor * x, elementwise; x f32 [rows, cols].
Value scale(GraphBuilder& g, Value x, ScaleAttrs attrs);

extern const OpDef kScale;

}  // namespace redline
