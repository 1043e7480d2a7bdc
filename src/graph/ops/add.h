#pragma once

#include "graph/graph.h"

namespace redline {

/// y = a + b, element by element; both f32 [rows, cols].
Value add(GraphBuilder& g, Value a, Value b);

extern const OpDef kAdd;

}  // namespace redline
