// Checkpoints of compressed-tensors' "int-quantized" W8A8, as vLLM and llm-compressor write them.
#pragma once

#include "models/checkpoint.h"

namespace redline {

/// Checks that config.json's "quantization_config" is this scheme. unsupported: another method, format or
/// scheme; the message lists what is supported.
Status check_int_quantized(const Checkpoint& checkpoint);

/// Of such a checkpoint every NAME.weight of int8 [N, K] and its NAME.weight_scale [N, 1] of a float
/// type become one w8a8 matrix (tensor/blocks/w8a8.h). Activations are quantized dynamically, with one
/// scale for every 1024 elements of a token instead of one per token, which is no coarser. Modules of the "ignore" list
/// keep their float weights. The file pages of a weight are released once it is read.
/// invalid_argument: a matrix without its scales, or scales that are not finite or of another shape. out_of_memory.
Status read_int_quantized(Checkpoint& checkpoint);

}  // namespace redline
