// Names of a UNet's modules in Stability's original files and in kohya's SDXL adapters.
#pragma once

#include "models/image/image_registry.h"

namespace redline {

/// Returns the original name of a diffusers module: "input_blocks.4.1.transformer_blocks.0.attn1.to_q" for
/// "down_blocks.1.attentions.0.transformer_blocks...". Assumes two layers per block, as in all published UNets. Returns
/// two names if the module alone does not determine the name: an upsampler's depends on whether its level has
/// attention. Empty: not a linear layer or convolution of a UNet.
std::vector<StoredModule> unet_stored_modules(const std::string& module);

}  // namespace redline
