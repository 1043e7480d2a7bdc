// Registries of the networks of text-to-image pipelines. Each file in this folder that builds such a network defines
// its row; image_registry.cc lists them.
#pragma once

#include <string_view>

#include "models/image_models.h"
#include "models/pipeline.h"

namespace redline {

struct TextEncoderRow {
  std::span<const std::string_view> class_names;  ///< of model_index.json
  Result<TextEncoderModel> (*build)(const Checkpoint& checkpoint);
  /// A second name that LoRA files use for the component, whatever its place in the pipeline; or "".
  std::string_view adapter_alias = {};
};

/// Weights of a denoiser that are distributed in one file.
struct SingleFileFormat {
  std::string_view gguf_architecture;                   ///< general.architecture of GGUF files
  std::span<const std::string_view> safetensors_names;  ///< parts of names that only its safetensors files have
  Result<Checkpoint> (*open)(const std::string& path) = nullptr;
};

/// The location of a diffusers module ("transformer_blocks.3.attn.to_k") in files with the original names: the rows of a
/// matrix from `first` on, in units of one `count`-th of the module's own rows.
struct StoredModule {
  std::string name;
  int64_t first = 0, count = 1;
  /// Of a module with twice as many outputs as inputs: its halves are in the other order. They are shift and scale of
  /// the last modulation.
  bool swaps_halves = false;
};

struct DenoiserRow {
  std::span<const std::string_view> class_names;  ///< the current one first, then older names of the same class
  /// Networks without transformer blocks ignore `blocks`.
  Result<DenoiserModel> (*build)(const Checkpoint& checkpoint, BlockSplit blocks);
  SingleFileFormat single_file = {};  ///< without `open`: there is none
  /// What adapter files call a module beside its own name; null: nothing else.
  std::vector<StoredModule> (*adapter_names)(const std::string& module) = nullptr;
};

struct AutoencoderRow {
  std::string_view class_name;  ///< of config.json
  Result<AutoencoderModel> (*build)(const Checkpoint& checkpoint);
};

/// unsupported: no row has this class; the message lists the known ones.
Result<const PipelineRow*> find_pipeline(std::string_view class_name);
Result<const TextEncoderRow*> find_text_encoder(std::string_view class_name);
Result<const DenoiserRow*> find_denoiser(std::string_view class_name);
/// "": AutoencoderKL, whose older config.json files have no class name.
Result<const AutoencoderRow*> find_autoencoder(std::string_view class_name);

/// All classes of components, in the order of the registries: denoisers, autoencoders, text encoders.
std::vector<std::string_view> image_component_classes();
/// Classes of denoisers that have a single-file format.
std::vector<std::string_view> single_file_classes();
/// Whether a denoiser in one file has this GGUF architecture, or this header of a safetensors file.
bool is_single_file_architecture(std::string_view gguf_architecture);
bool is_single_file_header(std::string_view safetensors_header);
/// Opens a denoiser in one file. The errors of its format; unsupported: it is of none.
Result<Checkpoint> open_single_file(const std::string& path);
/// What adapter files call a module, by the rows of all denoisers.
std::vector<StoredModule> find_stored_modules(const std::string& module);
/// Whether both names belong to one denoiser, or are equal.
bool is_same_component_class(std::string_view a, std::string_view b);

}  // namespace redline
