// Product of a value with the SiLU of another.
#pragma once

#include "graph/graph.h"

namespace redline {

/// y = silu(gate) * up with silu(v) = v / (1 + exp(-v)): the gate of SwiGLU (Shazeer 2020, arXiv:2002.05202).
/// Both f32 [rows, cols].
Value silu_mul(GraphBuilder& g, Value gate, Value up);

extern const OpDef kSiluMul;

}  // namespace redline
