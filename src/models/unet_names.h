// The names that Stability's own files and kohya's trainer for SDXL give to the modules of a UNet.
#pragma once

#include <string>

namespace redline {

/// "input_blocks.4.1.transformer_blocks.0.attn1.to_q" of diffusers' "down_blocks.1.attentions.0.transformer_blocks...":
/// of UNets with two layers a block, as all published ones are. Empty: no product of one.
std::string unet_stored_module(const std::string& module);

}  // namespace redline
