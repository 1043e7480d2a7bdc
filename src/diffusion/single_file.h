// Pipelines in one file under the original names, as model sites distribute them (.safetensors, .ckpt).
#pragma once

#include <memory>
#include <span>

#include "diffusion/single_file_names.h"
#include "models/checkpoint/checkpoint.h"

namespace redline {

/// One network of a family in the file.
struct SingleFileComponent {
  std::string_view name, library, class_name;  ///< as in model_index.json
  std::string_view prefix;                     ///< prefix of its tensors' names
  Result<WeightSources> (*rename)(const WeightSources& tensors, const nlohmann::json& config);
  std::string_view config;  ///< config.json of the family's published models
};

/// A family of pipelines in one file. A new one is a row in single_file.cc and the functions that rename its networks.
struct SingleFileFamily {
  std::string_view name;
  std::string_view class_name, inpainting_class_name;
  std::string_view key_prefix;  ///< only its files have tensors that begin with it
  std::span<const SingleFileComponent> components;
  std::string_view scheduler;  ///< scheduler_config.json
};
std::span<const SingleFileFamily> single_file_families();

/// Stable Diffusion 1, 2 and SDXL, text to image and inpainting: UNet, autoencoder and text encoders. The family is
/// recognized by names and shapes of tensors. Configurations are those of the family; tokenizers are not in such files.
class SingleFile {
 public:
  /// Returns true for a safetensors file or a zip archive of PyTorch whose first bytes may be those of such a pipeline.
  static bool may_be(const std::string& path);
  /// Maps the file and finds its family. A diffusers folder beside it, with the name of the file without its ending,
  /// or the folder that it lies in replaces the configurations of the family.
  /// unsupported: none of the families; the message names what the file seems to be and the families.
  static Result<SingleFile> open(const std::string& path);

  /// Returns the content that model_index.json of a diffusers folder would have.
  Result<nlohmann::json> model_index() const;
  Result<nlohmann::json> scheduler_config() const;
  /// Opens config and weights of a component, under the names of diffusers. invalid_argument: the file has not all of
  /// its tensors, or others; not_found: it has none, and the message names the component.
  Result<Checkpoint> open_component(std::string_view name) const;
  /// Returns the folder of a tokenizer. not_found: there is none beside the file; the message says where to put it.
  Result<std::string> tokenizer_folder(std::string_view name) const;

 private:
  std::string path_;
  std::string config_folder_;  ///< a diffusers folder, or ""
  const SingleFileFamily* family_ = nullptr;
  bool is_inpainting_ = false;
  std::shared_ptr<const WeightSources> tensors_;
  std::string format_;
};

}  // namespace redline
