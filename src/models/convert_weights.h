// Weights brought to another type when a checkpoint is opened.
#pragma once

#include "models/checkpoint.h"

namespace redline {

/// `count` values rounded to nearest: to f32, f16, bf16, q8_0 (whole blocks of 32, the scale max |x| / 127 as
/// float16), or w8a8 (one row, its scale as float32).
void round_row(DType to, const float* x, int64_t count, uint8_t* out);

/// Every float matrix (two axes) whose name `wanted` accepts, rounded to nearest: to bf16, or to q8_0 or w8a8 where its
/// rows are whole blocks of 32 (others stay). What is already narrower stays.
/// The pages of the file behind a weight are let go once it is converted.
/// out_of_memory; invalid_argument: another type.
Status convert_weights(Checkpoint& checkpoint, DType to, const std::function<bool(const std::string&)>& wanted);

/// Every float weight of a convolution (four axes) that the tile unit can multiply by, as bfloat16: those whose input
/// channels are a multiple of 32. The unit rounds to that type whatever a weight is; the few others are small and stay.
/// out_of_memory.
Status round_convolutions(Checkpoint& checkpoint);

}  // namespace redline
