// Weights brought to another type when a checkpoint is opened.
#pragma once

#include "models/checkpoint.h"

namespace redline {

/// Every float matrix (two axes) whose name `wanted` accepts, rounded to nearest: to bf16, or to q8_0 where its rows are
/// whole blocks of 32 (others stay). Blocks of q8_0 have the scale max |x| / 127 as float16. What is already narrower stays.
/// The pages of the file behind a weight are let go once it is converted.
/// out_of_memory; invalid_argument: another type.
Status convert_weights(Checkpoint& checkpoint, DType to, const std::function<bool(const std::string&)>& wanted);

}  // namespace redline
