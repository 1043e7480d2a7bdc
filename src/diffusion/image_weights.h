// Types to which the weights of an image pipeline's networks are converted, and options for compiling its graphs.
#pragma once

#include "models/checkpoint/checkpoint.h"
#include "models/checkpoint/precision.h"
#include "redline/image.h"
#include "runtime/executable.h"

namespace redline {

/// Returns the type for text encoders, which use bfloat16 instead of 8-bit types.
Precision text_encoder_precision(Precision type);
/// Returns the type for autoencoders: bfloat16, unless `type` is float32. Most are stored as float32, but bfloat16
/// makes no visible difference.
Precision autoencoder_precision(Precision type);

/// Converts the weights of a denoiser to `type`. Error: out_of_memory.
Status convert_image_weights(Checkpoint& checkpoint, Precision type);

/// Returns the options of compilation, without bounds.
ExecutableOptions image_network_options(Precision type, const DeviceChoice& device);

}  // namespace redline
