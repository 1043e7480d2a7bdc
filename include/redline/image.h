// Text-to-image generation with a diffusion pipeline. Start here.
//
//   auto engine = redline::ImageEngine::open("assets/redline-shapes");
//   if (!engine.ok()) return fail(engine.status());
//   redline::ImageRequest request = (*engine)->defaults();
//   request.prompts = {"a large red circle on a blue background"};
//   auto result = (*engine)->generate(request);
//   if (!result.ok()) return fail(result.status());
//   const redline::Status saved = redline::save_png("out.png", result->images[0]);
//   if (!saved.ok()) return fail(saved);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "redline/media.h"
#include "redline/option_types.h"
#include "redline/precision.h"
#include "redline/rgb_image.h"
#include "redline/runtime.h"
#include "redline/status.h"

namespace redline {

/// Options of ImageEngine::open(). The members that C, Python and the command line have too are the rows of
/// redline/image_options.inc, one by one with type, default and meaning.
struct ImageOptions {
#define REDLINE_OPTION(type, name, value, ...) REDLINE_CPP_##type name = value;
#include "redline/image_options.inc"
  std::shared_ptr<Runtime> runtime;  ///< shared with other engines; null: one with `threads` and `trace_file`
};

/// A dense float32 array, C order.
struct FloatArray {
  std::vector<int64_t> shape;
  std::vector<float> data;
};

/// State of a run after a step, passed to ImageEngine::generate's callback.
struct ImageProgress {
  int64_t step = 0, steps = 0;  ///< completed steps, total steps
  double step_ms = 0;           ///< time of the last step
  int64_t computed = 0;         ///< images of the batch whose step was computed, not forecast
  /// Latents after the step, [batch, channels, height, width], of video [batch, channels, frames, height, width]; valid
  /// during the call.
  const FloatArray* latents = nullptr;
  /// Model output after guidance, as passed to the solver; the shape of the latents.
  const float* output = nullptr;
  double sigma = 0, next_sigma = 0;  ///< noise level of the latents before and after the step
  double step_size = 0;              ///< Euler: the step added step_size * output to the latents; 0: other solvers
  /// Decodes a preview of image `index` of the batch: the model's current estimate of the final image, of a clip its
  /// first frame. Its longer side has at most `max_side` pixels (but at least one pixel of the latents). May be called
  /// during the callback only.
  std::function<Result<RgbImage>(int64_t index, int64_t max_side)> preview;
};

/// Input and settings of ImageEngine::generate().
/// The rows of redline/image_request.inc are members, one by one with type, default and meaning.
struct ImageRequest {
  std::vector<std::string> prompts;  ///< one per image, or one for all
#define REDLINE_OPTION(type, name, value, ...) REDLINE_CPP_##type name = value;
#include "redline/image_request.inc"
  /// Frames of each clip, for models of video; 0: the model's default. A model of images makes one.
  int64_t num_frames = 0;
  int64_t batch = 1;   ///< images per prompt, with one prompt
  uint64_t seed = 0;   ///< draws the same noise as torch.Generator("cpu").manual_seed
  std::string solver;  ///< scheduler, by class or short name; "": the model's own
  // Arrays and images are shared by copies of the request. Null: none.
  std::shared_ptr<const FloatArray> init_noise;  ///< standard normal, the shape of the latents; null: drawn from seed
  /// [batch, tokens, width]; together with pooled_embeds it replaces the output of the text encoders
  std::shared_ptr<const FloatArray> prompt_embeds;
  std::shared_ptr<const FloatArray> pooled_embeds;  ///< [batch, width]
  /// like prompt_embeds and pooled_embeds, for classifier-free guidance
  std::shared_ptr<const FloatArray> negative_prompt_embeds, negative_pooled_embeds;
  std::shared_ptr<const RgbImage> init_image;  ///< image to image: starts from this image, of any size
  /// Inpainting mask of any size: white pixels are regenerated, black ones are kept. A pixel with a luminance of at
  /// least 128 is white.
  std::shared_ptr<const RgbImage> mask;
};

/// Outputs of the text encoders, for ImageRequest::prompt_embeds and pooled_embeds.
struct PromptEmbeds {
  FloatArray text;                    ///< [prompts, tokens, width]
  FloatArray pooled;                  ///< [prompts, width]; empty if the pipeline has no pooled embeddings
  std::vector<std::string> warnings;  ///< e.g. a truncated prompt
};

/// Media, timings and settings of a finished ImageEngine::generate(). `images`, or `videos` if the model makes video,
/// has one item for each prompt or for each image of the batch. Both are empty with skip_decode.
struct ImageResult : MediaResult {
  FloatArray latents;                 ///< final latents of the solver, if keep_latents, as ImageProgress::latents
  std::vector<double> step_ms;        ///< time of each step
  std::vector<int64_t> computed;      ///< per step: images whose step was computed, not forecast
  double text_ms = 0;                 ///< time of the text encoders
  double loop_ms = 0;                 ///< time of all steps
  double decode_ms = 0;               ///< time of the VAE, latents to pixels
  std::string cache;                  ///< rule of the step cache with its parameters: "fbcache:threshold=0.08"
  std::string solver;                 ///< short name of the solver that was used: "flow-euler", "dpm++-karras"
  double operations = 0;              ///< floating-point operations of the denoiser's matrix products
  double executed_share = 1;          ///< operations relative to a run without a step cache
  std::vector<std::string> warnings;  ///< e.g. a truncated prompt
};

/// An open diffusion pipeline. Thread-safe: calls take turns.
class ImageEngine {
 public:
  /// Opens a diffusers folder. `options.max_side` and `max_batch` reserve address space, but no memory.
  static Result<std::unique_ptr<ImageEngine>> open(const std::string& path, const ImageOptions& options = {});
  virtual ~ImageEngine() = default;

  /// Returns the family, for example "flux".
  virtual const std::string& family() const = 0;
  /// Returns true if guidance was distilled into the network (FLUX.1). Then guidance_scale is an input of the network,
  /// and true_cfg_scale sets classifier-free guidance.
  virtual bool is_guidance_distilled() const = 0;
  /// Returns false if guidance_scale has no effect (FLUX.1 schnell, which was distilled without it).
  virtual bool takes_guidance_scale() const = 0;
  /// Returns the number of pixels that width and height must be multiples of.
  virtual int64_t size_multiple() const = 0;
  /// Returns width and height of a request's result. The first that applies:
  /// 1. the width and height that the request sets;
  /// 2. with an init_image, its size rounded down to size_multiple(), or, if a side exceeds max_side, a size with its
  ///    proportions and as many pixels as the model's default size;
  /// 3. the model's default size.
  virtual std::pair<int64_t, int64_t> size_of(const ImageRequest& request) const = 0;
  /// Returns a request with the model's default settings (redline.json, else the family's).
  virtual ImageRequest defaults() const = 0;
  /// Generates the images. Calls `on_step` after every step; returning false ends the run with Code::cancelled.
  /// invalid_argument: sizes that are not multiples of the model's patch, arrays of a wrong shape, guidance that the
  /// model does not support; the message names the field and the fix. internal: latents that are not finite.
  virtual Result<ImageResult> generate(const ImageRequest& request,
                                       const std::function<bool(const ImageProgress&)>& on_step = {}) = 0;
  /// Runs the text encoders alone. `max_sequence_length`: text tokens (T5); 0: the model's default. Padding that the
  /// denoiser does not attend to is cut off; unsupported: such a pipeline cannot encode prompts of different lengths
  /// together.
  virtual Result<PromptEmbeds> encode_prompts(const std::vector<std::string>& prompts,
                                              int64_t max_sequence_length = 0) = 0;
  /// Decodes final latents, as keep_latents gives them, to images or videos.
  virtual Result<MediaResult> decode(const FloatArray& latents) = 0;
  /// Loads a LoRA file (safetensors with PEFT or kohya names) for the denoiser and the text encoders as `name`; it has
  /// no effect until set_adapters. invalid_argument: a model or module that the pipeline does not have, shapes or ranks
  /// that do not fit, a name already in use.
  virtual Status load_adapter(const std::string& name, const std::string& path) = 0;
  /// Replaces the active adapters and their weights for the following requests. Cheap: only pointers change.
  /// not_found: no such name.
  virtual Status set_adapters(const std::vector<std::pair<std::string, double>>& adapters) = 0;

  struct MemoryReport {
    int64_t packed_weights = 0, arena = 0, arena_without_reuse = 0;
    int64_t arena_touched = 0;  ///< resident bytes of the arena
  };
  /// Memory of all models of the pipeline.
  virtual MemoryReport memory() const = 0;
};

/// A rule of the step cache, for ImageRequest::cache.
struct StepCacheRule {
  std::string name;                                  ///< "fbcache"
  std::string summary;                               ///< one line
  std::string source;                                ///< paper or repository; "-": none
  bool is_default = false;                           ///< "auto" selects this rule
  bool takes_quality = false, takes_budget = false;  ///< the rule uses ImageRequest::quality, steps_budget
};
std::vector<StepCacheRule> step_cache_rules();

/// Names of a solver in other programs: the sampler and the schedule of noise levels in A1111's web UI ("DPM++ 2M",
/// "Karras"; the schedule may be empty) and in ComfyUI ("dpmpp_2m", "karras").
struct SamplerNames {
  std::string web_ui, web_ui_schedule;
  std::string comfyui, comfyui_schedule;
};
/// Translates a name of ImageResult::solver. An unknown name is returned unchanged.
SamplerNames sampler_names(const std::string& solver);

/// Returns true if ImageRequest::solver accepts this sampler name of A1111's web UI, ComfyUI or diffusers, with or
/// without a suffix such as "-karras". A model may support only some of the known samplers.
bool is_known_sampler(const std::string& sampler);

/// Returns the largest rank in a LoRA file. ImageOptions::max_adapter_rank must be at least the sum over the active
/// files. Errors are those of ImageEngine::load_adapter.
Result<int64_t> adapter_rank(const std::string& path);

/// Writes an image as PNG. io: the file cannot be written.
Status save_png(const std::string& path, const RgbImage& image);

}  // namespace redline
