// Conditioning and default settings of diffusion pipelines. The file of each family in this folder defines the rows of
// its pipelines; image_registry.cc lists them.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/image/image_models.h"

namespace redline {

/// Outputs of a text encoder for some prompts.
struct EncodedText {
  int64_t prompts = 0, tokens = 0;
  int64_t width = 0, pooled_width = 0;
  std::vector<float> hidden;       ///< [prompts, tokens, width]
  std::vector<float> penultimate;  ///< [prompts, tokens, width], for CLIP only
  std::vector<float> pooled;       ///< [prompts, pooled_width], for CLIP only
  std::vector<int32_t> lengths;    ///< [prompts] tokens before the padding
  std::vector<std::string> warnings;
};

/// A text encoder together with its tokenizer.
class PromptEncoder {
 public:
  virtual ~PromptEncoder() = default;
  /// Encodes prompts. Each is padded, or truncated with a warning, to `tokens` (0: the encoder's limit).
  /// `mask_padding`: tokens do not attend to the padding if the encoder has a mask; FLUX and SD3 were trained without
  /// one.
  virtual Result<EncodedText> encode(std::span<const std::string> prompts, int64_t tokens, bool mask_padding) = 0;
};

/// The text encoders of a pipeline by component name: "text_encoder", "text_encoder_2", "text_encoder_3".
class PromptEncoders {
 public:
  void add(std::string name, PromptEncoder& encoder) { encoders_[std::move(name)] = &encoder; }
  bool has(std::string_view name) const { return encoders_.contains(name); }
  /// not_found: no such component.
  Result<PromptEncoder*> find(std::string_view name) const;

 private:
  std::map<std::string, PromptEncoder*, std::less<>> encoders_;
};

/// A denoiser's inputs for some prompts, by input name: rows of [prompts, ...].
struct PromptConditions {
  int64_t prompts = 0;
  int64_t tokens = 0;  ///< rows of "text" for each prompt
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, std::vector<int32_t>> integers;
  std::vector<std::string> warnings;

  void add_warnings(const EncodedText& text) {
    warnings.insert(warnings.end(), text.warnings.begin(), text.warnings.end());
  }
};

/// Concatenates the columns of a and b: [rows, a_width + b_width], padded with zeros to `width`.
std::vector<float> concat_columns(const std::vector<float>& a, int64_t a_width, const std::vector<float>& b,
                                  int64_t b_width, int64_t width);

struct PipelineRow {
  std::span<const std::string_view> class_names;  ///< class name in model_index.json: "FluxPipeline"
  std::string_view denoiser_component;            ///< "transformer"
  std::string_view denoiser_class;                ///< "FluxTransformer2DModel"
  /// Checks further requirements of the pipeline on the denoiser; may be null.
  Status (*check)(const DenoiserModel& model) = nullptr;
  /// Computes the denoiser's inputs for prompts. `text_tokens`: tokens of the encoder with the longest text
  /// (max_sequence_length).
  Result<PromptConditions> (*condition)(const PromptEncoders& encoders, const DenoiserModel& model,
                                        std::span<const std::string> prompts, int64_t text_tokens);
  /// Returns the input "time_ids" of one prompt for an image of this size; null: the denoiser has no such input.
  std::vector<float> (*time_ids)(int64_t width, int64_t height) = nullptr;
  /// True: the pipeline passes evenly spaced noise levels 1 .. 1 / steps to its solver; false: the solver spaces them.
  bool even_sigmas = false;
  /// True: guidance_scale is an input of the network, and classifier-free guidance is true_cfg_scale.
  bool is_distilled = false;
  /// True: an empty negative prompt is passed to the denoiser as zeros, unless model_index.json has
  /// force_zeros_for_empty_prompt false.
  bool zeros_for_empty_prompt = false;
  // Defaults if the folder has none.
  int64_t side = 0;  ///< pixels; 0: from the denoiser's sample_size
  int64_t num_inference_steps = 0;
  double guidance_scale = 0;
  int64_t max_sequence_length = 0;
  // Fields of pipelines of video.
  int64_t num_frames = 0;  ///< default and maximum of the frames of a clip; 0: a pipeline of images
  double frame_rate = 0;   ///< frames per second that the model was trained for
};

/// Returns the largest number of frames of one item; an image is one frame.
inline int64_t max_frames(const PipelineRow& row) { return std::max<int64_t>(row.num_frames, 1); }

}  // namespace redline
