// Checkpoints of compressed-tensors' "int-quantized" W8A8, as vLLM and llm-compressor write them.
#pragma once

#include "models/checkpoint.h"

namespace redline {

/// Whether config.json's "quantization_config", which is there, is that scheme. unsupported: another method, format or
/// scheme; the message says what is read.
Status check_int_quantized(const Checkpoint& checkpoint);

/// Of such a checkpoint every NAME.weight of int8 [N, K] and its NAME.weight_scale [N, 1] of a float
/// type become one w8a8 matrix (tensor/w8a8.h). Activations are rounded when they are there, as "dynamic" says, but
/// with a scale for every 1024 of a token, not one for all of it: no coarser. Modules of the "ignore" list have float
/// weights and stay. The pages of the file behind a weight are let go once it is read.
/// invalid_argument: a matrix without its scales, or scales that are not finite or of another shape. out_of_memory.
Status read_int_quantized(Checkpoint& checkpoint);

}  // namespace redline
