// Reads a diffusers folder, in which model_index.json lists the components and each has its own folder; or a single
// file that holds all networks of a pipeline.
#pragma once

#include <optional>

#include "diffusion/prompt_words.h"
#include "diffusion/single_file.h"
#include "models/checkpoint/checkpoint.h"

namespace redline {

/// One entry of model_index.json: "transformer": ["diffusers", "FluxTransformer2DModel"].
struct PipelineComponent {
  std::string name, library, class_name;
};

/// Recommended settings from redline.json, in the folder of model_index.json: {"defaults": {...}, "step_cache": "FILE",
/// "prompt_words": {...}}.
struct PipelineDefaults {
  std::optional<int64_t> width, height, num_inference_steps, max_sequence_length;
  std::optional<double> guidance_scale, true_cfg_scale;
  std::optional<std::string> negative_prompt;
  std::string step_cache;  ///< name of a calibration file (calibration_file.h) in the same folder; or ""
  PromptWords prompt_words;
};

struct PipelineFiles {
  std::string path;
  std::string class_name;                     ///< "FluxPipeline"
  std::vector<PipelineComponent> components;  ///< components that are not null, in the file's order
  nlohmann::json scheduler_config;
  PipelineDefaults defaults;
  std::optional<bool> zeros_for_empty_prompt;  ///< model_index.json's force_zeros_for_empty_prompt
  std::optional<SingleFile> single;            ///< set for a pipeline in one file
  std::string denoiser_file;  ///< single-file denoiser (DenoiserRow::single_file) that replaces the folder's; or ""

  /// Opens a folder, or a file as SingleFile::open does.
  /// not_found: no folder, no model_index.json or no scheduler. invalid_argument: a file that is not JSON of the
  /// expected form; the message names the field.
  static Result<PipelineFiles> open(const std::string& path);
  const PipelineComponent* find(std::string_view name) const;
  /// Returns the folder of a component's tokenizer. not_found: a pipeline in one file without a tokenizer beside it.
  Result<std::string> tokenizer_folder(const std::string& name) const;
  /// Opens config and weights of a component. The folder of a denoiser with a DenoiserRow::single_file may hold such a
  /// file. not_found: model_index.json has no component of this name, or its folder is missing. unsupported: an unknown
  /// class; the message lists the known ones. invalid_argument: config.json is of another class.
  Result<Checkpoint> open_component(std::string_view name) const;
};

}  // namespace redline
