// Tensors of the networks of Stable Diffusion under their original names (CompVis, Stability AI, OpenCLIP) become those
// of diffusers and transformers.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "graph/graph.h"

namespace redline {

using WeightSources = std::map<std::string, WeightSource>;

/// Each takes the tensors of one network, without their common prefix, and its config.json in the form of diffusers.
/// Nothing is copied but transposed projections. unsupported: a tensor that the network does not have, by its original
/// name.

/// The UNet of SD and SDXL: "input_blocks.1.0.in_layers.2.weight".
Result<WeightSources> rename_unet(const WeightSources& tensors, const nlohmann::json& config);
/// AutoencoderKL: "decoder.up.3.block.0.conv1.weight".
Result<WeightSources> rename_autoencoder(const WeightSources& tensors, const nlohmann::json& config);
/// CLIP as transformers has it, whose names stay.
Result<WeightSources> rename_clip(const WeightSources& tensors, const nlohmann::json& config);
/// OpenCLIP: "transformer.resblocks.0.attn.in_proj_weight". Layers beyond num_hidden_layers are left out.
Result<WeightSources> rename_open_clip(const WeightSources& tensors, const nlohmann::json& config);

}  // namespace redline
