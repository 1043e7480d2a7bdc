// Names of a UNet's modules in Stability's original files and in kohya's SDXL adapters.
#pragma once

#include "models/image_registry.h"

namespace redline {

/// "input_blocks.4.1.transformer_blocks.0.attn1.to_q" of diffusers' "down_blocks.1.attentions.0.transformer_blocks...":
/// of UNets with two layers per block, as all published ones. Two names where the module alone does not determine it:
/// an upsampler comes after the attention of its level, if any. None: not a linear layer or convolution of a UNet.
std::vector<StoredModule> unet_stored_modules(const std::string& module);

}  // namespace redline
