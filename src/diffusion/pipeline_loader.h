// Opens a diffusers folder: reads every component, converts it to the requested type and compiles it.
#pragma once

#include "diffusion/denoiser.h"
#include "diffusion/pipeline_adapters.h"
#include "diffusion/pipeline_files.h"
#include "diffusion/step_cache/rule.h"
#include "diffusion/text_encoders.h"
#include "diffusion/vae_codec.h"
#include "models/image/image_registry.h"
#include "redline/image.h"

namespace redline {

constexpr int64_t kMaxTextTokens = 1024;

/// A pipeline that is ready to run.
struct Pipeline {
  const PipelineRow* row = nullptr;
  std::string family_name;  ///< "flux"
  ImageOptions options;     ///< the options, with dtype kQ8 replaced by the actual type
  ImageRequest defaults;
  nlohmann::json scheduler_config;
  std::vector<CalibratedMask> masks;
  PromptWords prompt_words;
  bool zeros_for_empty_prompt = false;

  std::shared_ptr<Runtime> runtime;
  std::map<std::string, std::unique_ptr<TextEncoder>> text_encoders;  ///< by component name
  PromptEncoders prompt_encoders;                                     ///< refers to text_encoders
  std::unique_ptr<Denoiser> denoiser;
  VaeCodec vae;
  PipelineAdapters adapters;

  /// Returns the executables of all components.
  std::vector<const Executable*> networks() const;
};

/// Opens a pipeline. Errors: those of ImageEngine::open().
Result<std::unique_ptr<Pipeline>> load_pipeline(const std::string& path, const ImageOptions& options);

}  // namespace redline
