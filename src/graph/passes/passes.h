// Rewrites of a graph. Each is one file with one test that the result equals the composed form.
#pragma once

#include "graph/graph.h"

namespace redline {

/// add(r, linear(x)) with the linear read by nobody else becomes linear(x) + r in the linear's epilogue: one pass less
/// over the hidden state.
Status fuse_residual(Graph& graph);

/// Drops ops whose results reach no output.
Status remove_dead(Graph& graph);

/// All of them, in order.
Status run_passes(Graph& graph);

}  // namespace redline
