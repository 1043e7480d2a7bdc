// FLUX.1 transformers as they are passed around in one file: the makers' safetensors, and GGUF.
#pragma once

#include "models/checkpoint.h"

namespace redline {

/// A .safetensors or .gguf file with the makers' names (double_blocks.0.img_attn.qkv.weight; GGUF as city96's converter
/// and stable-diffusion.cpp write it), plain or below "model.diffusion_model.", then perhaps beside encoders and
/// autoencoder, which are left aside; or with diffusers' names. Gives diffusers' names and config: query, key and value
/// are ranges of rows of the stored matrices, the halves of the last modulation change places, nothing is copied. A
/// config.json beside the file is taken where its shapes agree; without one the config follows from the shapes.
/// unsupported: not a FLUX.1 transformer, a tensor that has no place in one, a type that Redline does not read, or a
/// head size other than 128 without config.json (how its elements rotate stands in no tensor). invalid_argument: a
/// tensor is missing, or its shape does not fit the others.
Result<Checkpoint> open_flux_file(const std::string& path);

/// Where the makers' files keep what diffusers calls `module` ("transformer_blocks.3.attn.to_k"): the rows of
/// "double_blocks.3.img_attn.qkv" from `first` on, in units of one `count`-th of the module's own rows. An empty name:
/// not a module of a block of FLUX.
struct FluxStoredModule {
  std::string name;
  int64_t first = 0, count = 1;
};
FluxStoredModule find_stored_module(const std::string& module);

}  // namespace redline
