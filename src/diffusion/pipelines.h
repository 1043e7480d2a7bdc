// The pipelines that Redline draws with: what they ask of their text encoders, and their habits. One row each in
// pipelines.cc, by the class name of model_index.json.
#pragma once

#include <functional>
#include <map>

#include "diffusion/text_encoders.h"

namespace redline {

/// What a denoiser takes of some prompts, by the names of its inputs: rows of [prompts, ...].
struct PromptConditions {
  int64_t prompts = 0;
  int64_t tokens = 0;  ///< rows of "text" for each prompt
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, std::vector<int32_t>> integers;
  std::vector<std::string> warnings;
};

/// By component name: "text_encoder", "text_encoder_2", "text_encoder_3".
using TextEncoders = std::map<std::string, std::unique_ptr<TextEncoder>, std::less<>>;

struct PipelineFamily {
  std::string_view class_name;          ///< "FluxPipeline"
  std::string_view denoiser_component;  ///< "transformer"
  std::string_view denoiser_class;      ///< "FluxTransformer2DModel"
  std::function<Result<DenoiserModel>(const Checkpoint& checkpoint, BlockSplit blocks)> build;
  /// `text_tokens`: rows of the longest encoder's text (max_sequence_length).
  Result<PromptConditions> (*condition)(TextEncoders& encoders, const DenoiserModel& model,
                                        std::span<const std::string> prompts, int64_t text_tokens);
  /// True: the pipeline gives its solver evenly spaced noise levels 1 .. 1 / steps; false: the solver spaces them
  /// itself.
  bool even_sigmas;
  bool is_distilled;  ///< `guidance` is an input of the network; classifier-free guidance is `true_guidance`
  // Recommendations where the folder has none.
  int64_t side;  ///< 0: as large as the denoiser's sample_size says
  int64_t steps;
  double guidance;
  int64_t text_tokens;
  /// An empty negative prompt is zeros for the denoiser, unless model_index.json has force_zeros_for_empty_prompt
  /// false.
  bool zeros_for_empty_prompt = false;
};

/// What SDXL is told of a picture of that size, drawn whole: height and width of the original, top and left of the
/// crop, height and width wanted.
std::vector<float> sdxl_time_ids(int64_t width, int64_t height);

const std::vector<PipelineFamily>& pipeline_families();
/// unsupported: the message lists those there are.
Result<const PipelineFamily*> find_pipeline_family(std::string_view class_name);

}  // namespace redline
