// Conversion of weights to another type when a checkpoint is opened.
#pragma once

#include "models/checkpoint.h"

namespace redline {

/// Every float matrix (two axes) whose name `wanted` accepts, rounded to nearest: to bf16, or to a quantized type that
/// can_round_to where its rows are whole blocks (others stay). Narrower types stay as they are.
/// The file pages of a converted weight are released.
/// out_of_memory; invalid_argument: another type.
Status convert_weights(Checkpoint& checkpoint, DType to, const std::function<bool(const std::string&)>& wanted);

/// Rounds float weights of convolutions (four axes) to bfloat16 where the tile unit can use them: with a multiple of 32
/// input channels. The unit computes in that type anyway; the few other convolutions are small and stay.
/// out_of_memory.
Status round_convolutions(Checkpoint& checkpoint);

}  // namespace redline
