// The types to which the weights of an image pipeline's networks are converted, and how its graphs are compiled.
#pragma once

#include <optional>

#include "models/checkpoint.h"
#include "redline/image.h"
#include "runtime/executable.h"

namespace redline {

/// kQ8 is the 8-bit type that suits the device.
ImageType resolve_type(ImageType type, const CpuKernels& kernels, const DeviceChoice& device);
/// Text encoders are not quantized to 8 bits: bfloat16 instead.
ImageType text_encoder_type(ImageType type);
/// Most autoencoders are stored as float32; bfloat16 makes no visible difference.
ImageType autoencoder_type(ImageType type);

/// Converts the weights that `type` names. out_of_memory.
Status convert_image_weights(Checkpoint& checkpoint, ImageType type);

/// Without bounds.
ExecutableOptions image_network_options(ImageType type, const DeviceChoice& device);

}  // namespace redline
