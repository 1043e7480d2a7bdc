// The types to which the weights of an image pipeline's networks are converted, and how its graphs are compiled.
#pragma once

#include "models/checkpoint.h"
#include "models/precision.h"
#include "redline/image.h"
#include "runtime/executable.h"

namespace redline {

/// Text encoders are not quantized to 8 bits: bfloat16 instead.
Precision text_encoder_precision(Precision type);
/// Most autoencoders are stored as float32; bfloat16 makes no visible difference.
Precision autoencoder_precision(Precision type);

/// Converts the weights that `type` names. out_of_memory.
Status convert_image_weights(Checkpoint& checkpoint, Precision type);

/// Without bounds.
ExecutableOptions image_network_options(Precision type, const DeviceChoice& device);

}  // namespace redline
