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

struct DenoiserRow {
  std::span<const std::string_view> class_names;  ///< the current one first, then older names of the same class
  /// Networks without transformer blocks ignore `blocks`.
  Result<DenoiserModel> (*build)(const Checkpoint& checkpoint, BlockSplit blocks);
  /// Opens weights that are distributed in a single file; null: there are none.
  Result<Checkpoint> (*open_file)(const std::string& path) = nullptr;
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
/// Classes of denoisers that have DenoiserRow::open_file.
std::vector<std::string_view> single_file_classes();
/// Whether both names belong to one denoiser, or are equal.
bool is_same_component_class(std::string_view a, std::string_view b);

}  // namespace redline
