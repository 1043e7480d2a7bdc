// Opens FLUX.1 transformers that are stored in a single file: the original safetensors, and GGUF.
#pragma once

#include "models/checkpoint/checkpoint.h"
#include "models/image/image_registry.h"

namespace redline {

/// Opens a .safetensors or .gguf file with diffusers' names or the original ones (double_blocks.0.img_attn.qkv.weight;
/// GGUF as written by city96's converter and stable-diffusion.cpp), optionally below "model.diffusion_model."; encoders
/// and an autoencoder in the same file are ignored. The checkpoint has diffusers' names and config: query, key and
/// value are row ranges of the stored matrices, the halves of the last modulation are swapped, and nothing is copied. A
/// config.json in the same folder is used if its shapes agree; without one the config follows from the shapes.
/// unsupported: not a FLUX.1 transformer, an unknown tensor, an unsupported type, or a head size other than 128 without
/// config.json (no tensor tells its rotary axes). invalid_argument: a tensor is missing or has another shape.
Result<Checkpoint> open_flux_file(const std::string& path);

/// Returns the location of a module of FLUX in the original files, their adapters and XLabs' adapters, such as rows of
/// "double_blocks.3.img_attn.qkv". Empty: not a module of the transformer.
std::vector<StoredModule> flux_stored_modules(const std::string& module);

}  // namespace redline
