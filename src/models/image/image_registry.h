// Registries of the networks of text-to-image pipelines. Each file in this folder that builds such a network defines
// its row; image_registry.cc lists them.
#pragma once

#include <string_view>

#include "models/image/image_models.h"
#include "models/image/pipeline.h"

namespace redline {

struct TextEncoderRow {
  std::span<const std::string_view> class_names;  ///< class names in model_index.json
  Result<TextEncoderModel> (*build)(const Checkpoint& checkpoint);
  /// A second name that LoRA files use for the component, independent of its name in the pipeline; or "".
  std::string_view adapter_alias = {};
};

/// A format in which the weights of a denoiser are distributed in one file.
struct SingleFileFormat {
  std::string_view gguf_architecture;  ///< general.architecture of GGUF files
  /// parts of tensor names that occur only in safetensors files of this format
  std::span<const std::string_view> safetensors_names;
  Result<Checkpoint> (*open)(const std::string& path) = nullptr;
};

/// The location of a diffusers module ("transformer_blocks.3.attn.to_k") in files with the original names: the rows of a
/// matrix from `first` on, in units of one `count`-th of the module's own rows.
struct StoredModule {
  std::string name;
  int64_t first = 0, count = 1;
  /// The halves of the rows are in the other order. This concerns the last modulation, whose halves are shift and
  /// scale.
  bool swaps_halves = false;
};

struct DenoiserRow {
  std::span<const std::string_view> class_names;  ///< the current name first, then older names of the same class
  /// Networks without transformer blocks ignore `blocks`.
  Result<DenoiserModel> (*build)(const Checkpoint& checkpoint, BlockSplit blocks);
  SingleFileFormat single_file = {};  ///< has no `open` if there is no such format
  /// Returns the names that adapter files use for a module besides its own name; null: there are none.
  std::vector<StoredModule> (*adapter_names)(const std::string& module) = nullptr;
};

struct AutoencoderRow {
  std::string_view class_name;  ///< class name in config.json
  Result<AutoencoderModel> (*build)(const Checkpoint& checkpoint);
};

/// Each returns the row of a class. unsupported: no row has this class; the message lists the known ones.
Result<const PipelineRow*> find_pipeline(std::string_view class_name);
Result<const TextEncoderRow*> find_text_encoder(std::string_view class_name);
Result<const DenoiserRow*> find_denoiser(std::string_view class_name);
/// Returns the row of a class; "" stands for AutoencoderKL, whose older config.json files have no class name.
Result<const AutoencoderRow*> find_autoencoder(std::string_view class_name);

/// Returns all classes of components, in the order of the registries: denoisers, autoencoders, text encoders.
std::vector<std::string_view> image_component_classes();
/// Returns the classes of denoisers that have a single-file format.
std::vector<std::string_view> single_file_classes();
/// Return true if this GGUF architecture, or this header of a safetensors file, is that of a denoiser in one file.
bool is_single_file_architecture(std::string_view gguf_architecture);
bool is_single_file_header(std::string_view safetensors_header);
/// Opens a denoiser in one file. Errors: those of its format; unsupported: the file is of no known format.
Result<Checkpoint> open_single_file(const std::string& path);
/// Returns the names that adapter files use for a module, from the rows of all denoisers.
std::vector<StoredModule> find_stored_modules(const std::string& module);
/// Returns true if both names belong to one denoiser, or are equal.
bool is_same_component_class(std::string_view a, std::string_view b);

}  // namespace redline
