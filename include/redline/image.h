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
#include "redline/precision.h"
#include "redline/rgb_image.h"
#include "redline/runtime.h"
#include "redline/status.h"

namespace redline {

/// Options of ImageEngine::open().
struct ImageOptions {
  int threads = 0;  ///< worker threads; 0: REDLINE_THREADS, else all cores available to the process
  Precision dtype = Precision::kAuto;
  /// "cpu"; "emu": the kernels of GPUs on an emulated device, slowly; "cuda" or "cuda:N"; "auto": what REDLINE_DEVICE
  /// names, else a GPU that can run the model, else the CPU
  std::string device = "auto";
  int64_t max_side = 2048;       ///< largest width and height, in pixels
  int64_t max_batch = 8;         ///< maximum images of one request times guidance branches
  int64_t front_blocks = 1;      ///< blocks that run before the step cache decides
  int64_t tail_blocks = 0;       ///< blocks that run after those that a step cache skips (DBCache's Bn)
  int64_t max_adapter_rank = 0;  ///< maximum sum of the ranks of active LoRA adapters; 0: none can be loaded
  int64_t vae_tile = 0;          ///< side of the VAE's decoding tiles, in pixels; 0: chosen by memory; -1: no tiles
  bool use_interpreter = false;  ///< reference mode: run the graphs op by op in float64, slowly
  std::string
      transformer_file;  ///< a single-file transformer (FLUX.1: safetensors, GGUF) that replaces the folder's; "": none
  /// Masks for step budgets (written by `redline calibrate`). "": the file that the model's redline.json names, else
  /// its step_cache.json, if any.
  std::string step_cache_file;
  std::string vae_folder;  ///< an autoencoder (AutoencoderKL, AutoencoderTiny) that replaces the pipeline's; "": none
  std::string trace_file;  ///< write a timeline (Perfetto JSON) when the engine closes; "": none
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
struct ImageRequest {
  std::vector<std::string> prompts;  ///< one per image, or one for all
  std::string negative_prompt;       ///< used with classifier-free guidance; "": an empty prompt
  int64_t width = 0, height = 0;     ///< pixels; 0: chosen by ImageEngine::size_of()
  /// Frames of each clip, for models of video; 0: the model's default. A model of images makes one.
  int64_t num_frames = 0;
  int64_t num_inference_steps = 0;  ///< 0: the model's default
  double guidance_scale = -1;  ///< scale of distilled (FLUX.1 dev) or classifier-free guidance; -1: the model's default
  double true_cfg_scale = -1;  ///< scale of classifier-free guidance of a distilled model; 1: none; -1: the default
  double guidance_begin = 0, guidance_end = 1;  ///< range of the steps with classifier-free guidance, as fractions
  bool split_guidance = false;      ///< runs the guidance branches one after the other, which halves the memory
  int64_t max_sequence_length = 0;  ///< maximum text tokens (T5); 0: the model's default
  int64_t batch = 1;                ///< images per prompt, with one prompt
  uint64_t seed = 0;                ///< draws the same noise as torch.Generator("cpu").manual_seed
  /// Image i draws its noise from seed + i, like a list of generators in diffusers. It then equals the image of a
  /// request with only that seed. False: one generator draws for the whole batch.
  bool seed_each = false;
  std::string solver;        ///< scheduler, by class or short name; "": the model's own
  std::string cache;         ///< rule of the step cache: "none", "auto", "fbcache:threshold=0.1", ...
  double quality = -1;       ///< 0 .. 1, sets the rule's threshold; -1: unset
  int64_t steps_budget = 0;  ///< number of steps to compute, the others are forecast; 0: unset
  // Arrays and images are shared by copies of the request. Null: none.
  std::shared_ptr<const FloatArray> init_noise;  ///< standard normal, the shape of the latents; null: drawn from seed
  /// [batch, tokens, width], replaces the text encoders (with pooled_embeds)
  std::shared_ptr<const FloatArray> prompt_embeds;
  std::shared_ptr<const FloatArray> pooled_embeds;  ///< [batch, width]
  /// Embeddings of the negative prompt, for classifier-free guidance with prompt_embeds.
  std::shared_ptr<const FloatArray> negative_prompt_embeds, negative_pooled_embeds;
  std::shared_ptr<const RgbImage> init_image;  ///< image to image: starts from this image, of any size
  /// Inpainting mask of any size: white pixels are regenerated, black ones are kept. A pixel with a luminance of at
  /// least 128 is white.
  std::shared_ptr<const RgbImage> mask;
  /// How init_image and mask are resized to the size of the result: "stretch" (the default of diffusers; also ""),
  /// "crop" or "fit" (the border pixels fill the rest), each with Lanczos' filter.
  std::string resize;
  double strength = 0.8;  ///< image to image: fraction of the steps that run
  /// With `mask`: result pixels where the mask is black are exactly those of `init_image`, and gray ones are blended.
  /// False: they come from the VAE, with small differences.
  bool keep_unmasked = false;
  bool keep_latents = false;  ///< the result has the final latents
  bool skip_decode = false;   ///< makes no images; use keep_latents, and ImageEngine::decode() later
};

/// Outputs of the text encoders, for ImageRequest::prompt_embeds and pooled_embeds.
struct PromptEmbeds {
  FloatArray text;                    ///< [prompts, tokens, width]
  FloatArray pooled;                  ///< [prompts, width]; empty if the pipeline has no pooled embeddings
  std::vector<std::string> warnings;  ///< e.g. a truncated prompt
};

/// Media, timings and settings of a finished ImageEngine::generate(). `images`, or `videos` of a model of video, has an
/// item for each prompt, or for each of the batch; both are empty with skip_decode.
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
