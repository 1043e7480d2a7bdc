// Conversion of an activation to the layouts that linear ops read.
#pragma once

#include "graph/graph.h"

namespace redline {

/// Converts an activation to the layouts that linear ops read (ValueInfo::layouts of the output); the identity in exact
/// arithmetic. Inserted by passes/prepare_activations, not by models.
///
/// x       [rows, cols]  f32
/// returns [rows, cols]  in its layouts
extern const OpDef kPrepareX;

}  // namespace redline
