// Opens a diffusers folder: every component read, converted to the wanted type and compiled once.
#pragma once

#include "diffusion/denoiser.h"
#include "diffusion/pipeline_adapters.h"
#include "diffusion/pipeline_files.h"
#include "diffusion/step_cache/rule.h"
#include "diffusion/text_encoders.h"
#include "diffusion/vae_codec.h"
#include "models/image_registry.h"
#include "redline/image.h"

namespace redline {

constexpr int64_t kMaxTextTokens = 1024;

/// A pipeline that is ready to run.
struct Pipeline {
  const PipelineRow* row = nullptr;
  std::string family_name;  ///< "flux"
  ImageOptions options;     ///< dtype kQ8 resolved
  ImageRequest defaults;
  nlohmann::json scheduler_config;
  std::vector<CalibratedMask> masks;
  PromptWords prompt_words;
  bool zeros_for_empty_prompt = false;

  std::shared_ptr<Runtime> runtime;
  std::map<std::string, std::unique_ptr<TextEncoder>> text_encoders;  ///< by component
  PromptEncoders prompt_encoders;                                     ///< the same
  std::unique_ptr<Denoiser> denoiser;
  VaeCodec vae;
  PipelineAdapters adapters;

  /// The executables of all components.
  std::vector<const Executable*> networks() const;
};

/// Errors as ImageEngine::open's.
Result<std::unique_ptr<Pipeline>> load_pipeline(const std::string& path, const ImageOptions& options);

}  // namespace redline
