#pragma once

#include "graph/graph.h"

namespace redline {

/// The same values in the forms that products read (ValueInfo::forms of the output); in exact arithmetic the identity.
/// Put in by passes/prepare_activations, not by models.
///
/// x       [rows, cols]  f32
/// returns [rows, cols]  in its forms
extern const OpDef kPrepareX;

}  // namespace redline
