// The names that Stability's own files and kohya's trainer for SDXL give to the modules of a UNet.
#pragma once

#include <string>
#include <vector>

namespace redline {

/// "input_blocks.4.1.transformer_blocks.0.attn1.to_q" of diffusers' "down_blocks.1.attentions.0.transformer_blocks...":
/// of UNets with two layers a block, as all published ones are. Two where the name depends on more than the module: an
/// upsampler stands behind the attention of its level, if that has any. None: no product or convolution of a UNet.
std::vector<std::string> unet_stored_modules(const std::string& module);

}  // namespace redline
