// A diffusers folder: model_index.json says which components there are, each in a folder of its own.
#pragma once

#include <optional>

#include "models/checkpoint.h"

namespace redline {

/// One entry of model_index.json: "transformer": ["diffusers", "FluxTransformer2DModel"].
struct PipelineComponent {
  std::string name, library, class_name;
};

/// redline.json beside model_index.json: {"defaults": {...}, "step_cache": "FILE"}, what the model's makers recommend.
struct PipelineDefaults {
  std::optional<int64_t> width, height, steps, max_sequence_length;
  std::optional<double> guidance, true_guidance;
  std::optional<std::string> negative_prompt;
  std::string step_cache;  ///< a calibration (calibration_file.h) in the same folder; "": none is named
};

struct PipelineFiles {
  std::string path;
  std::string class_name;                     ///< "FluxPipeline"
  std::vector<PipelineComponent> components;  ///< those that are not null, in the file's order
  nlohmann::json scheduler_config;
  PipelineDefaults defaults;
  std::optional<bool> zeros_for_empty_prompt;  ///< model_index.json's force_zeros_for_empty_prompt
  std::string denoiser_file;  ///< a FLUX.1 transformer in one file (models/flux_file.h) in place of the folder's; or ""

  /// not_found: no folder, no model_index.json or no scheduler. invalid_argument: a file that is no JSON of its kind,
  /// with the field that is wrong.
  static Result<PipelineFiles> open(const std::string& path);
  const PipelineComponent* find(std::string_view name) const;
  /// Config and weights of a component. A folder of a FLUX transformer may hold one file of models/flux_file.h instead.
  /// not_found: model_index.json has none of that name, or its folder is missing. unsupported: a class that Redline
  /// does not have; the message lists those there are. invalid_argument: config.json is of another class.
  Result<Checkpoint> open_component(std::string_view name) const;
};

}  // namespace redline
