// Converts weights to another type when a checkpoint is opened.
#pragma once

#include "models/checkpoint/checkpoint.h"

namespace redline {

/// Converts every float matrix (two axes) whose name `wanted` accepts, rounding to nearest: to bf16, or to a quantized
/// type that can_round_to() supports. Matrices whose rows are not whole blocks keep their type, as do narrower types.
/// The file pages of a converted weight are released.
/// Errors: out_of_memory; invalid_argument: another type.
Status convert_weights(Checkpoint& checkpoint, DType to, const std::function<bool(const std::string&)>& wanted);

/// Rounds float weights of convolutions (four axes) to bfloat16 if the tile unit can use them, which needs a multiple
/// of 32 input channels. The unit computes in that type anyway. The few other convolutions are small and keep their
/// type. Error: out_of_memory.
Status round_convolutions(Checkpoint& checkpoint);

}  // namespace redline
